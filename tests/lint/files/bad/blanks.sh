#!/bin/bash
export NCCL_IB_TIMEOUT = 22
NCCL_IB_GID_INDEX = 3
export NCCL_SOCKET_IFNAME= eth0
export NCC_DEBUG=INFO NCCL_IB_HCA="mlx5_[0-3]"
srun ./train
export NCCL_DEBUG=INFO
