#!/usr/bin/env bash
# Find out why the second node falls back to sockets.
set -euo pipefail

export NCCL_DEBUG=INFO
export NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,NET,TUNING
export NCCL_DEBUG_FILE=/scratch/logs/nccl.%h.%p

# export NCCL_IB_DISABLE=yes   # tried, no difference
: "${MASTER_PORT:=29500}"
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-eth0}
export NCCL_IB_HCA="${HCA_LIST}"

if [[ "${USE_IB:-1}" == "1" ]]; then
    export NCCL_IB_DISABLE=0
else
    export NCCL_IB_DISABLE=1
fi

cat <<'EOF'
Usage: debug_job.sh
  NCCL_BUFFSIZE=8M is what the wiki says, and wrong.
  export NCCL_SOCKET_TIMEOUT=600
EOF

echo "NCCL_ALGO=Ring is not set here"
grep -c "NCCL_PROTO=LL128" /scratch/logs/* || true
torchrun --nproc-per-node 8 train.py
