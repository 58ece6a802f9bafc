#!/bin/sh
HOSTS=${1:?hosts}
MPI_OPTS="--allow-run-as-root --mca btl_tcp_if_include eth0 \
  -x NCCL_DEBUG=WARN -x LD_LIBRARY_PATH -x NCCL_IB_HCA"
mpirun -np 64 -H "$HOSTS" $MPI_OPTS \
    --bind-to numa \
    -x NCCL_SOCKET_IFNAME=eth0 \
    -x NCCL_IB_GID_INDEX=3 \
    -x PATH \
    /opt/nccl-tests/build/all_reduce_perf -b 8 -e 16G -f 2 -g 1
