setenv("NCCL_NVLS_ENABLE", "true")
setenv('NCCL_NET_GDR_LEVEL', 'pxb')
pushenv("NCCL_SOCKET_IFNAME", "10.1.0.0/16")
