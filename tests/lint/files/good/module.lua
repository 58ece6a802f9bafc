-- NCCL for the partition with four rails
help([[NCCL with the cluster's own settings]])
prepend_path("LD_LIBRARY_PATH", pathJoin("/opt/nccl", "lib"))
setenv("NCCL_HOME", "/opt/nccl")
setenv("NCCL_IB_HCA", "=mlx5_0,mlx5_3,mlx5_4,mlx5_5")
setenv("NCCL_SOCKET_IFNAME", "bond0")
