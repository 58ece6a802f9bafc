import os
import subprocess

import ray

WANTED = {"NCCL_BUFFSIZE": "4M", "NCCL_P2P_LEVEL": "nvl"}
os.environ.update(WANTED)
ray.init(runtime_env={"env_vars": {"NCCL_IB_TIMEOUT": "100"}})
subprocess.run(["mpirun", "-x", "NCCL_NVLS_ENABLE=true", "-x", "NCCL_DEBUG=LOUD", "./train"])
command = "srun --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1 ./train"
subprocess.run(command.split(), env=dict(os.environ, NCLL_DEBUG="INFO"))
os.system("NCCL_SOCKET_IFNAME='eth0, eth1' ./train")
