"""What Slurm hands to its tasks: `--export` lists and what a task prolog prints."""

from __future__ import annotations

import pytest

from tests.lint.test_readers import found, pairs
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import embedded

LISTED = [("NCCL_NET", "IB"), ("NCCL_IB_HCA", None), ("NCCL_NVLS_ENABLE", "true")]


@pytest.mark.parametrize(
    "command",
    [
        'srun --export="ALL,NCCL_NET=IB,NCCL_IB_HCA=$H,NCCL_NVLS_ENABLE=true" ./a',
        'srun --export "ALL,NCCL_NET=IB,NCCL_IB_HCA=${H},NCCL_NVLS_ENABLE=true" ./a',
        'srun "--export=ALL,NCCL_NET=IB,NCCL_IB_HCA=$(h),NCCL_NVLS_ENABLE=true" ./a',
        'srun --export=ALL,NCCL_NET="IB",NCCL_IB_HCA="$H",NCCL_NVLS_ENABLE=true ./a',
        'sbatch --export=NCCL_NET=IB,X="$Y",NCCL_IB_HCA=$H,"NCCL_NVLS_ENABLE"=true a.sh',
        'qsub -v "NCCL_NET=IB,NCCL_IB_HCA=$H,NCCL_NVLS_ENABLE=true" a.sh',
    ],
)
def test_export_lists(command: str) -> None:
    read = found(command)
    assert [(each.name, each.value) for each in read] == LISTED
    assert [command[each.at :].removeprefix('"')[:5] for each in read] == ["NCCL_"] * 3
    spans = [command[each.span[0] : each.span[1]] if each.span else None for each in read]
    assert all(span in (value, None) for span, (_, value) in zip(spans, LISTED, strict=True))


def test_quotes_of_the_shell_do_not_keep_a_comma() -> None:
    (remark,) = embedded.read(Piece('srun --export=ALL,NCCL_IB_HCA="mlx5_0,mlx5_1" ./a'), "shell").remarks
    assert remark.code == "ENV117"
    assert "only `mlx5_0`" in remark.message
    text = "srun --export=\"ALL,NCCL_IB_HCA='mlx5_0,mlx5_1'\" ./a"
    assert pairs(text) == [("NCCL_IB_HCA", "mlx5_0,mlx5_1", "launcher")]


@pytest.mark.parametrize("name", ["taskprolog.sh", "slurm.task_prolog", "TaskProlog", "gpu-task-prolog.bash"])
def test_a_task_prolog_sets_what_it_prints(name: str) -> None:
    text = (
        'echo "export NCCL_NET=IB"\n'
        "echo export NCCL_IB_HCA=mlx5_$SLURM_LOCALID\n"
        "cat <<EOF\nexport NCCL_NVLS_ENABLE=true\nEOF\n"
        'echo "print NCCL_DEBUG=INFO"\necho "unset NCCL_P2P_DISABLE"\n'
        "export NCCL_DEBUG=WARN\n"
    )
    read = embedded.read_named(name, Piece(text))
    assert read is not None
    assert [(each.name, each.value, each.way) for each in read.assignments] == [
        (variable, value, "export") for variable, value in LISTED
    ]
    assert read.assignments[1].only == "local rank"
    assert [(remark.code, remark.variable) for remark in read.remarks] == [("ENV122", "NCCL_DEBUG")]
