import os
from os import environ

os.environ["NCCL_DEBUG"] = "LOUD"
os.environ["NCCL_P2P_DISABLE"] = 1
os.environ["NCCL_NVLS_ENABLE"] = True
environ.setdefault("NCCL_BUFFSIZE", "16M")
os.environ.update({"NCCL_SOCKET_IFNAME": "=^lo", "NCCL_TIMEOUT": "1800"}, NCCL_ALGO="Ring,Tre")
if int(os.environ.get("RANK", 0)) == 0:
    os.environ["NCCL_PROTO"] = "Simple"
os.putenv("NCCL_IB_SL", "16")
env = {"NCCL_CHECK_POINTER": "1"}
os.environ["TORCH_NCCL_BLOCKING_WAITS"] = "1"
torch.distributed.init_process_group("nccl")
os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
os.environ["NCCL_CROSS_NIC"] = "1"
