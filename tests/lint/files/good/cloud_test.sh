#!/bin/bash
# all_reduce between eight nodes, by the cloud's recipe
set -euo pipefail
source /opt/hpcx/hpcx-init.sh && hpcx_load
ARGS=(
  -np 64 --map-by ppr:8:node -hostfile "$HOSTS" --bind-to numa
  -x NCCL_TOPO_FILE=/opt/topo.xml
  -x NCCL_IB_PCI_RELAXED_ORDERING=1
  -x NCCL_SOCKET_IFNAME=eth0
  -x NCCL_DEBUG=WARN
  -x LD_LIBRARY_PATH
)
for algo in Ring Tree NVLSTree; do
  mpirun "${ARGS[@]}" -x NCCL_ALGO=$algo /opt/nccl-tests/build/all_reduce_perf -b 8 -e 8G -f 2 -g 1
done
mpirun "${ARGS[@]}" -x NCCL_ALGO=Ring -x NCCL_PROTO=Simple /opt/nccl-tests/build/all_gather_perf -b 8 -e 8G -f 2
NCCL_DEBUG= ./summary.sh
export NCCL_DEBUG=INFO
source more.sh
