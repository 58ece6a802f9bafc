"""What NCCL will do on a machine: transports, rings, GPUDirect RDMA, and what each setting changes."""
