#!/bin/bash
# topoadvisor: ignore[ENV116] measured 2026-10: Tree loses 8 % here
export NCCL_ALGO=Ring
export NCCL_MIN_NRINGS=4  # topoadvisor: ignore[ENV106]
# topoadvisor: ignore[ENV013] read by another program
export NCCL_IB_TC=106x
# topoadvisor: ignore[ENV112] was true once
export NCCL_NVLS_ENABLE=2
# topoadvisor: ignore[ENV999] no such code
export NCCL_IB_GID_INDEX=3
# topoadvisor: ignore
export NCCL_SHM_DISABLE=0
