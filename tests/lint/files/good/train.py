"""Trains. Sets NCCL_DEBUG=INFO only on request; NCCL_BUFFSIZE=8M never."""
import os
import socket
import subprocess

import torch.distributed as dist

NCCL_HELP = {"NCCL_SOCKET_TIMEOUT": "no such thing", "NCCL_DEBUG": "log level"}


def setup(args):
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["NCCL_SOCKET_IFNAME"] = args.ifname
    os.environ["NCCL_IB_TIMEOUT"] = str(22)
    os.environ["NCCL_TOPO_FILE"] = f"/etc/topo/{socket.gethostname()}.xml"
    if args.verbose:
        os.environ["NCCL_DEBUG"] = "INFO"
    elif args.trace:
        os.environ["NCCL_DEBUG"] = "TRACE"
    if dist.get_rank() == 0:
        os.environ["NCCL_DEBUG_FILE"] = "/tmp/rank0.log"
    os.environ.pop("NCCL_ASYNC_ERROR_HANDLING", None)
    if os.environ.get("NCCL_LAUNCHER_STYLE") == "a":
        os.environ["NCCL_LAUNCHER_STYLE"] = "b"


def sweep():
    for algo in ("Ring", "Tree"):
        env = dict(os.environ, NCCL_ALGO=algo)
        subprocess.run(["all_reduce_perf"], env=env, check=True)
    env = os.environ.copy()
    env["NCCL_P2P_LEVEL"] = os.environ["LEVEL"]
    env.update({"NCCL_IB_GID_INDEX": "3"})
