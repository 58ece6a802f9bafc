#!/bin/bash
#SBATCH --nodes=2
export NCCL_BUFFSIZE=8M
export NCCL_NVLS_ENABLE=true
export NCCL_SOCKET_TIMEOUT=600
export NCCL_IB_TIMEOUT=1000
srun --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1 python train.py
