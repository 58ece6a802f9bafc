"""Starts the training on the cluster, and one node for debugging."""

import os
import subprocess

import ray

SHARED = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_DEBUG": "WARN", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}
HELP = {"NCCL_DEBUG": "how much NCCL prints", "NCCL_ALGO": "do not use it"}


def command(hosts: str, debug: bool) -> list[str]:
    words = ["mpirun", "-np", "16", "-H", hosts, "-x", "NCCL_SOCKET_IFNAME=ib0", "-x", "LD_LIBRARY_PATH"]
    if debug:
        words += ["-x", "NCCL_DEBUG=INFO", "-x", f"NCCL_DEBUG_FILE={os.getcwd()}/nccl.%h.%p"]
    return [*words, "python", "train.py"]


def main() -> None:
    env = {**os.environ, **SHARED}
    env["NCCL_IB_HCA"] = os.environ.get("NCCL_IB_HCA", "mlx5_0,mlx5_1")
    subprocess.run(command("a:8,b:8", debug=False), env=env, check=True)
    subprocess.run("srun --export=ALL,NCCL_DEBUG=WARN ./check.sh", shell=True, check=True)
    ray.init(runtime_env={"env_vars": SHARED})
    print("export NCCL_DEBUG=LOUD to see nothing")
    os.environ["NCCL_DEBUG"] = "INFO" if os.environ.get("DEBUG") else "WARN"
