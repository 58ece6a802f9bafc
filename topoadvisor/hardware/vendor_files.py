"""Files by which the platforms of cloud vendors, and what NVIDIA's software needs, are recognised without a network."""

from __future__ import annotations

from typing import Final

AWS_PLUGIN: Final = ("/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
AWS_EFA: Final = ("/opt/amazon/efa",)
AZURE_TOPOLOGIES: Final = (
    "/opt/microsoft/ndv2/topo.xml",
    "/opt/microsoft/ndv4/topo.xml",
    "/opt/microsoft/ndv5/topo.xml",
    "/opt/microsoft/ncv4/topo.xml",
)
GCP_GIB: Final = ("/usr/local/gib/scripts/set_nccl_env.sh",)
GCP_TCPXO: Final = ("/usr/local/nvidia/lib64/nccl-env-profile.sh", "/var/lib/tcpxo/lib64/nccl-env-profile.sh")
IMEX_CHANNELS: Final = ("/dev/nvidia-caps-imex-channels/channel0",)
IMEX_NODES: Final = ("/etc/nvidia-imex/nodes_config.cfg",)
MEMORY_PEERS: Final = (
    "/sys/kernel/mm/memory_peers/nv_mem/version",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
)
"""What NCCL before 2.23.4 takes for a sign of nvidia_peermem (`ncclIbGdrSupport` in `src/transport/net_ib.cc`)."""
GDRCOPY: Final = ("/dev/gdrdrv",)

ALL: Final = (
    *AWS_PLUGIN,
    *AWS_EFA,
    *AZURE_TOPOLOGIES,
    *GCP_GIB,
    *GCP_TCPXO,
    *IMEX_CHANNELS,
    *IMEX_NODES,
    *MEMORY_PEERS,
    *GDRCOPY,
)
"""Everything that a capture looks for."""

NAMED_BY: Final = frozenset(
    {
        "NCCL_TOPO_FILE",
        "NCCL_GRAPH_FILE",
        "NCCL_TUNER_CONFIG_FILE",
        "NCCL_TUNER_CONFIG_PATH",
        "NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE",
    }
)
"""Variables that name a file which has to be there."""
