#!/bin/bash
# all_reduce_perf over algorithms, protocols and channels
NCCL_TESTS_HOME=/opt/nccl-tests/build
NCCL_ARGS="-b 8 -e 8G -f 2 -g 8"
for algo in Ring Tree NVLS; do
  for proto in LL LL128 Simple; do
    NCCL_ALGO=$algo NCCL_PROTO=$proto $NCCL_TESTS_HOME/all_reduce_perf $NCCL_ARGS
  done
done
NCCL_ALGO=Ring $NCCL_TESTS_HOME/all_reduce_perf $NCCL_ARGS
NCCL_P2P_DISABLE=1 "$NCCL_TESTS_HOME"/sendrecv_perf -b 8 -e 1G
export NCCL_MAX_CTAS=8
"$NCCL_TESTS_HOME"/all_reduce_perf $NCCL_ARGS
export NCCL_MAX_CTAS=16
"$NCCL_TESTS_HOME"/all_reduce_perf $NCCL_ARGS
unset NCCL_MAX_CTAS
env -u NCCL_ALGO NCCL_NVLS_ENABLE=0 "$NCCL_TESTS_HOME"/all_reduce_perf $NCCL_ARGS
