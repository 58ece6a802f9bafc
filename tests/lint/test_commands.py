"""Settings that reach a job through other programs: `env`, `ssh`, `eval`, texts fed to shells and to Python."""

from __future__ import annotations

import pytest

from tests.lint.test_checks import told
from tests.lint.test_readers import pairs

POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - {name: NCCL_NET, value: IB}\n"


@pytest.mark.parametrize(
    "text",
    [
        "env -u NCCL_DEBUG -u X NCCL_NET=IB ./a",
        "env --unset=NCCL_DEBUG -C /tmp NCCL_NET=IB ./a",
        "sudo -E -u me NCCL_NET=IB ./a",
        'env -S "NCCL_NET=IB ./a"',
        'ssh host "NCCL_NET=IB ./a"',
        "cat <<'EOF' | ssh host bash -s\nexport NCCL_NET=IB\nEOF\n",
        "cat <<EOF | bash\nexport NCCL_NET=IB\nEOF\n",
        "bash <<< 'export NCCL_NET=IB'",
        'eval "export NCCL_NET=IB"',
        "python3 - <<'EOF'\nimport os\nos.environ['NCCL_NET'] = 'IB'\nEOF\n",
        f"kubectl apply -f - <<EOF\n{POD}EOF\n",
        "set -gx NCCL_NET IB",
        '#BSUB -env "all,NCCL_NET=IB"',
        "flux run --env=NCCL_NET=IB ./a",
        "jsrun -E NCCL_NET=IB ./a",
        "aprun -e NCCL_NET=IB ./a",
    ],
)
def test_what_other_programs_hand_on(text: str) -> None:
    assert [each[:2] for each in pairs(text)] == [("NCCL_NET", "IB")]


@pytest.mark.parametrize(
    "text",
    [
        "env -u NCCL_NET=IB ./a",
        "sudo -u NCCL_NET=IB ./a",
        "ssh host grep NCCL_NET=IB log",
        "grep -q x <<< 'NCCL_NET=IB'",
        "python3 a.py <<EOF\nNCCL_NET=IB\nEOF\n",
        "set -x\necho NCCL_NET IB",
        "cat <<EOF | less\nexport NCCL_NET=IB\nEOF\n",
    ],
)
def test_what_sets_nothing(text: str) -> None:
    assert pairs(text) == []


def test_line_ends_of_windows() -> None:
    (found,) = told('export NCCL_IB_HCA="mlx5_0"\r\nexport NCCL_IB_TC=1\r\n./a\r\n')
    assert (found.code, found.severity, found.line) == ("ENV112", "warning", 1)
    assert "CR" in found.message
    assert told("export NCCL_IB_HCA=mlx5_0 # x\r\n./a\r\n") == []
    assert told("NCCL_IB_HCA=mlx5_0\r\n", "a.env") == []
