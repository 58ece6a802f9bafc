"""ENV161: variables that ranks must share, set by some of them only."""

from __future__ import annotations

import pytest

from tests.lint.test_checks import told

MACHINE = "must be the same on every rank of a machine"


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("case $LOCAL_RANK in\n0) export NCCL_IB_HCA=mlx5_0 ;;\nesac\n./a\n", "run.sh", [MACHINE]),
        ("export NCCL_IB_HCA=mlx5_$OMPI_COMM_WORLD_LOCAL_RANK\n./a\n", "run.sh", [MACHINE]),
        ("export NCCL_IB_HCA=mlx5_${SLURM_LOCALID}:1\n./a\n", "run.sh", [MACHINE]),
        ('import os\nos.environ["NCCL_IB_HCA"] = f"mlx5_{local_rank}"\n', "a.py", [MACHINE]),
        ("if [ $SLURM_NODEID = 0 ]; then export NCCL_IB_HCA=mlx5_9; fi\n./a\n", "run.sh", []),
        ('if [ "$(hostname)" = a ]; then export NCCL_IB_HCA=mlx5_9; fi\n./a\n', "run.sh", []),
        ("export NCCL_DEBUG_FILE=/tmp/nccl.$LOCAL_RANK\n./a\n", "run.sh", []),
        ("export NCCL_IB_HCA=$MY_HCAS\n./a\n", "run.sh", []),
        ("export MASTER_ADDR=$(hostname)\n./a\n", "run.sh", []),
        ('import os\nos.environ["MASTER_ADDR"] = hosts[0] if rank == 0 else address\n', "a.py", []),
        ('import os\nos.environ["NCCL_CUMEM_ENABLE"] = "1" if local_rank < 8 else "1"\n', "a.py", []),
        (
            "if [ $SLURM_NODEID = 0 ]; then export NCCL_BUFFSIZE=8388608; fi\n./a\n",
            "run.sh",
            ["must be the same on every rank,"],
        ),
    ],
)
def test_what_ranks_must_share_is_not_set_by_the_rank(text: str, name: str, said: list[str]) -> None:
    found = [each.message for each in told(text, name) if each.code == "ENV161"]
    assert len(found) == len(said)
    assert all(part in message for part, message in zip(said, found, strict=True))


def test_pods_may_have_different_nics() -> None:
    pod = """
      {role}:
        template:
          spec:
            containers:
              - name: pytorch
                env:
                  - name: {variable}
                    value: "{value}"
"""
    for variable, values, expected in [
        ("NCCL_IB_HCA", ("mlx5_0", "mlx5_4"), []),
        ("NCCL_BUFFSIZE", ("4194304", "8388608"), ["ENV161"]),
    ]:
        pods = "".join(
            pod.format(role=role, variable=variable, value=value)
            for role, value in zip(("Master", "Worker"), values, strict=True)
        )
        text = f"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:{pods}"
        assert [each.code for each in told(text, "job.yaml") if each.code == "ENV161"] == expected, variable
