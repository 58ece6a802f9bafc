#!/bin/bash
NCCL_SOCKET_IFNAME=eth0
NCCL_IB_HCA="mlx5_0, mlx5_1"
if [ "$SLURM_PROCID" = "0" ]; then
  export NCCL_ALGO=Tree
fi
case $(hostname) in
  node0*) export NCCL_BUFFSIZE=8388608 ;;
esac
export NCCL_IB_GID_INDEX=3
export NCCL_IB_GID_INDEX=0
export NCCL_P2P_DISABLE=1
export NCCL_P2P_LEVEL=NVL
export NCCL_IB_DISABLE=1
python train.py
