#!/bin/bash
OPTS="-x NCCL_IB_TIMEOUT=50 -x NCCL_DEBUG=INFO"
ARGS=(-x NCCL_BUFFSIZE=4MB -x NCCL_NTHREADS=1000)
mpirun $OPTS "${ARGS[@]}" \
  -x NCCL_ALGO=Tree,Ring,MSCCL \
  -x NCCL_PROTO="LL, Simple" \
  ./train
mpiexec.hydra -genv NCCL_IB_RETRY_CNT 13 -n 8 ./train
docker run --gpus all -e NCCL_SHM_DISABLE=yes --env=NCCL_LAUNCH_MODE=GRUOP img
sudo tee /etc/nccl.conf <<EOF
NCCL_DEBUG="WARN"
EOF
echo 'export NCCL_TIMEOUT=1800' >> ~/.bashrc
bash -c 'export NCCL_CROSS_NIC=3; ./train'
env NCCL_NET_GDR_READ=on ./train
