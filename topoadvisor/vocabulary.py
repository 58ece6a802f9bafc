"""Every fact that a rule can read: its name, its type and what it means.

A fact that starts with a subject kind (`gpu.`, `pair.`, `nic.`, `bridge.`, `variable.`) belongs to one subject; all
others are facts of the node. `env.NAME` stands for every variable name and is not listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, NamedTuple

SubjectKind = Literal["node", "gpu", "pair", "nic", "bridge", "variable"]
KINDS: Final[tuple[SubjectKind, ...]] = ("node", "gpu", "pair", "nic", "bridge", "variable")

FactType = Literal["bool", "int", "number", "text", "texts"]

TYPE_WORDS: Final[dict[FactType, str]] = {
    "bool": "true or false",
    "int": "a whole number",
    "number": "a number",
    "text": "a text",
    "texts": "a list of texts",
}

_ENVIRONMENT = re.compile(r"env\.[A-Za-z_][A-Za-z0-9_]*")


class FactSpec(NamedTuple):
    """Type and meaning of one fact."""

    type: FactType
    meaning: str


_TABLE: Final = """
gpus.count int | number of NVIDIA GPUs
gpus.models texts | the different model names, in GPU order
gpus.same_model bool | all GPUs have one model name
gpus.model text | the model name, when all GPUs share it
gpus.architecture text | turing, ampere, ada, hopper, blackwell, …, when all GPUs share it
gpus.geforce bool | every GPU is a GeForce
gpus.mig bool | some GPU is in MIG mode
gpus.full_width int | GPUs whose PCIe link runs on all of its lanes
gpus.bar1_covers_memory bool | the BAR1 of every GPU is at least as large as its memory
gpus.same_architecture bool | all GPUs are of one architecture
gpus.expected int | GPUs of such a machine when it is complete; 0 when it has no fixed number
gpus.pci_count int | NVIDIA GPUs on the PCI bus, whether a driver took them or not
gpus.unbound texts | PCI addresses of NVIDIA GPUs that no driver has taken
gpus.lost texts | GPUs of which NVML says that they are lost: they fell off the bus
gpus.sxm bool | some GPU sits on an SXM board
gpus.compute_capability_min number | lowest compute capability
gpus.compute_capability_max number | highest compute capability
gpus.beyond_level int | pairs without NVLink that the driver grants P2P and that are farther than NCCL's P2P level
gpus.beyond_level_pairs text | the pairs that gpus.beyond_level counts
nvlink.any bool | some NVLink is up
nvlink.refused_pairs text | pairs with NVLink whose peer access the driver refuses; empty when none
nvlink.full_mesh bool | every pair of GPUs has NVLink
nvlink.ll128_by_itself bool | NCCL uses LL128 between all GPUs of this machine without being told
nvlink.switch bool | NVLinks run through NVSwitches
nvlink.hidden_switch bool | NVLink peers exist that this operating system cannot see
nvlink.summary text | NVLink classes and how many pairs have each
nvlink.groups text | groups of GPUs that NVLink joins: GPU0 GPU1 | GPU2 GPU3; empty when none
nvlink.largest_group int | GPUs in the largest of these groups; 0 when none
nvlink.gbps number | paper bandwidth of the active NVLinks of one GPU, GB/s per direction; of the GPU that has least
nvlink.ring bool | NVLinks close a ring over the GPUs of a job: those that CUDA_VISIBLE_DEVICES selects, else all
p2p.any_refused bool | the driver refuses peer access for some pair
p2p.all_ok bool | the driver grants peer reads and writes for every pair
p2p.none_ok bool | the driver grants peer access for no pair
p2p.summary text | the driver's answers and how many pairs have each
p2p.acs_bridges texts | bridges on the way of any pair without NVLink that the driver grants P2P, on which ACS redirects
p2p.redirected_pairs int | pairs without NVLink on whose way ACS redirects; 0 also where ACS was not read
p2p.pairs_without_nvlink int | GPU pairs that no NVLink joins
p2p.worst_nccl_path text | farthest NCCL path type between two GPUs; empty with one GPU
p2p.worst_nvlinkless_path text | farthest NCCL path type of the pairs without NVLink; empty when all have one
p2p.switch_pairs int | GPU pairs that PCIe switches join (PIX or PXB)
p2p.worst_class text | `nvidia-smi` class of the farthest two GPUs over PCIe; empty with one GPU
p2p.uplink_groups text | groups of GPUs behind one PCIe switch or tree of switches; empty when none
p2p.largest_uplink_group int | GPUs in the largest of these groups; 0 when none
p2p.staged_pairs int | pairs that NCCL stages through shared host memory
p2p.staged_pairs_within_numa int | those of them without NVLink whose PCIe path stays inside one NUMA node
p2p.network_pairs int | pairs of this machine that NCCL sends over the network
p2p.pcie_pairs int | pairs without NVLink that NCCL lets talk directly over PCIe
p2p.direct_host_pairs int | pairs without NVLink that NCCL lets talk directly through a host bridge
p2p.refused_among_equals texts | pairs of equal GPUs below one PCIe switch that the driver refuses, granting a neighbour
p2p.host_pairs int | pairs without NVLink whose PCIe path crosses a host bridge
c2c.any bool | some GPU has a chip-to-chip link to its CPU
job.symptom text | what was reported: hang, slow, refused, crash, wrong-data, out-of-memory; empty when nothing was
job.message text | what was printed about it: by a program, by NCCL, or as an Xid line of dmesg; empty if nothing
job.xids texts | numbers of the Xids that it holds, or that were said to stand in the kernel's log
job.xid_kind text | kind of the most telling one: bus, gsp, reset, nvlink5, nvlink, memory, program, note, recovery
job.rdma_failed bool | the message is of RDMA: a verbs call, a vendor error, an error or timeout of NET/IB
job.framework text | who communicates: NCCL, PyTorch, vLLM, SGLang, TensorRT-LLM, llama.cpp, …; empty when nobody said
job.llama_cpp bool | the framework is llama.cpp or a program that bundles it
job.collective text | the operation concerned: all-reduce, all-to-all, …; empty when nobody said
job.transport text | transport that its log names: P2P, SHM, NET/Socket, NET/IB; empty when nobody said
job.nodes int | machines of the job; 0 when nobody said
job.local_ranks int | processes of the job on this machine; 0 when nobody said
job.failed_after_seconds int | seconds from its start to its failure; -1 when nobody said
job.busbw_gbps number | bus bandwidth that a benchmark reached, over all machines of job.nodes; 0 when nobody said
driver.version text | NVIDIA driver version
driver.flavour text | open or proprietary kernel modules
driver.patched_p2p bool | the driver is a community build that enables P2P
driver.nvlink_disabled bool | the driver was loaded with NVreg_NvLinkDisable=1
driver.stream_mem_ops bool | the driver was loaded with NVreg_EnableStreamMemOPs=1
driver.peer_mapping_override bool | the driver was loaded with the registry key PeerMappingOverride=1
driver.registry text | registry keys that the driver was loaded with
confidential.enabled bool | GPUs run in confidential-computing mode
cuda.version text | highest CUDA version that the driver supports
nccl.version text | version of the NCCL library that comes first
nccl.default_p2p_level text | farthest path over which this NCCL uses P2P by itself
nccl.default_reason text | why the default P2P level is what it is, one clause
nccl.p2p_level text | farthest path over which NCCL uses P2P after NCCL_P2P_DISABLE and NCCL_P2P_LEVEL
nccl.libraries int | NCCL libraries found
nccl.versions texts | different versions of the NCCL libraries found
nccl.net_plugins texts | NCCL network plugins (libnccl-net*.so) in the loader's folders
cpu.vendor text | Intel, AMD, Arm, IBM, Zhaoxin, NVIDIA
cpu.architecture text | x86_64, aarch64, ppc64le
cpu.model_name text | CPU model as read
cpu.family int | CPU family number
cpu.model int | CPU model number
cpu.sockets int | CPU sockets
cpu.desktop bool | a processor for desktops or notebooks
cpu.generation text | Rome, Milan, Genoa, Turin, Skylake, …
cpu.allowed int | logical CPUs that this process may run on
cpu.governor text | frequency governor: performance, powersave, schedutil
kernel.numa_balancing bool | the kernel moves pages between NUMA nodes by itself
capabilities.ipc_lock bool | this process may lock any amount of memory
capabilities.sys_nice bool | this process may place memory on NUMA nodes, which cuMem host allocations need
numa.count int | NUMA nodes
numa.gpu_nodes int | different NUMA nodes that GPUs are nearest to
numa.without_memory int | NUMA nodes that have CPUs but no memory
vm.guest bool | this is a virtual machine
vm.hypervisor text | KVM, VMware, Microsoft, Xen, none
vm.host_with_passthrough bool | a GPU is bound to vfio-pci, for a guest of this host
container.kind text | docker, podman, kubernetes, lxc, wsl, none
container.any bool | this is a container
iommu.enabled bool | the kernel groups devices behind an IOMMU
iommu.translated bool | a GPU's DMA addresses are translated by the IOMMU
iommu.mode text | types of the GPUs' IOMMU groups: identity (passed through), DMA, DMA-FQ (translated); off without one
platform.vendor text | maker of the system
platform.product text | product name of the system, or the instance type of a cloud machine
platform.cloud text | aws, azure, gcp, oci, none; coreweave where it is told
platform.system text | dgx-1, dgx-a100, dgx-h100, …, none
platform.machine text | machine type of a cloud (p5.48xlarge, NDv5, a3-ultragpu-8g) or the system; partly inferred
platform.efa_expected int | EFA devices of a complete instance of this type; 0 when it has none or is not known
vendor.profile text | the cloud vendor's NCCL profile or topology file that is here; empty when none
vendor.values text | list of NCCL values that the vendor publishes for this machine type; empty when none
vendor.missing texts | variables of that list that are not set here
vendor.applied texts | variables of that list that are set here, as published or otherwise
vendor.efa_plugin bool | the folder of AWS's NCCL plugin is here
shm.total_bytes int | size of /dev/shm in bytes
shm.free_bytes int | free bytes in /dev/shm
limits.memlock_bytes int | locked memory a process may have, in bytes; -1 = unlimited
limits.open_files int | files a process may open; -1 = unlimited
limits.stack_bytes int | stack limit in bytes; -1 = unlimited
kernel.version text | kernel release
kernel.command_line text | kernel command line
modules.nvidia_peermem bool | nvidia_peermem (or nv_peer_mem) is loaded
modules.gdrdrv bool | gdrdrv is loaded
modules.mlx5_ib bool | mlx5_ib is loaded
modules.ib_umad bool | ib_umad is loaded
gdr.peermem bool | GPUDirect RDMA is possible through nvidia_peermem
gdr.dmabuf_possible bool | GPUDirect RDMA is possible through DMA-BUF: open modules, kernel 5.12 or newer
gdr.any_path bool | GPUDirect RDMA is possible one way or the other
gdr.memory_peers bool | the kernel shows nv_mem below /sys/kernel/mm/memory_peers, where NCCL before 2.23.4 looks
gdr.acs_bridges texts | bridges between a GPU and a port below the same switch on which ACS redirects
gdr.acs_redirect bool | some bridge between a GPU and a port below the same switch redirects by ACS
gdr.far_gpus texts | GPUs without an active RDMA port below their own PCIe switch
fabricmanager.state text | active, inactive, failed, not-installed
fabricmanager.version text | version of the fabric manager
fabricmanager.matches_driver bool | the fabric manager has the driver's version
imex.state text | nvidia-imex: active, inactive, failed, not-installed
imex.channel bool | /dev/nvidia-caps-imex-channels/channel0 is here
mnnvl.possible bool | the GPUs belong to a multi-node NVLink fabric and have joined it
nvshmem.used bool | variables of NVSHMEM are set, or the job was said to use it
fabric.completed bool | every GPU is registered with its NVLink fabric
nvswitch.visible bool | NVSwitches are driven from this operating system
rdma.count int | RDMA devices
rdma.names texts | all RDMA devices
rdma.active texts | RDMA devices with an active port
rdma.any bool | some RDMA device (InfiniBand, RoCE, EFA) has an active port
rdma.gpu_local texts | active RDMA devices below one switch with a GPU, the fastest only
rdma.gbps number | rate of those together, GB/s per direction
rdma.near_gpus texts | RDMA devices below a switch with a GPU that are not known to be down
rdma.others_near texts | active RDMA devices below a switch with a GPU, but slower or of another link layer
rdma.others texts | active RDMA devices that are not GPU-local
rdma.link_layers texts | link layers of active RDMA ports: InfiniBand, Ethernet (RoCE)
rdma.local_link_layers texts | link layers among rdma.gpu_local
rdma.others_near_other_layer texts | the rdma.others_near of a link layer that no rdma.gpu_local has
rdma.efa bool | some RDMA device is an AWS EFA
rdma.uverbs int | /dev/infiniband/uverbs* device nodes
rdma.bonds texts | RDMA devices that are bonds and are not known to be down
rdma.ports_sharing_a_card texts | active RDMA devices that are ports of one card and share its PCIe link
rdma.rocev2_indexes texts | rows of the GID table that are RoCE v2 on every active RoCE port
rdma.hca_exact text | NCCL_IB_HCA value that selects the GPU-local devices; empty when there is nothing to choose
visible.set bool | CUDA_VISIBLE_DEVICES is in force and lists plain indexes
visible.gpus texts | labels of the GPUs that it selects
visible.dropped texts | entries that CUDA leaves out: the first that no GPU here has and all after it
visible.count int | how many GPUs CUDA_VISIBLE_DEVICES selects
visible.straddles bool | the selected GPUs lie in several groups of near GPUs although one group could hold as many
visible.groups text | the selected GPUs, group by group
visible.worst_class text | link class of the farthest two selected GPUs
net.default_interface text | interface of the IPv4 default route
net.interfaces texts | interfaces that are up
net.candidates texts | interfaces from which NCCL takes its sockets when nothing is set
net.fastest_gbit number | rate of the fastest interface or port that is up, Gbit/s; 0 without one
net.bootstrap text | the first of net.candidates, which NCCL starts a job over; empty without one
net.bootstrap_suspicious bool | net.bootstrap is one of net.suspicious
net.suspicious texts | the net.candidates that are bridges, virtual pairs or tunnels
topology.disagreements int | things that two sources say differently
measured.any bool | peer copies were measured
measured.failed_pairs texts | pairs between which direct copies timed out, crashed, failed or arrived changed
measured.failed_staged_pairs texts | pairs between which copies through host memory did
measured.failed_collectives texts | NCCL's collectives that gave wrong values, timed out, crashed or failed
measured.failed_patterns texts | rings and switches on which copies at once timed out, crashed, failed or came wrong
measured.contention text | what `topoadvisor verify` finds wrong with copies that ran at once, of the worst; or empty
pcie.unknown_speeds texts | GPUs and bridges above them whose link speed the kernel does not know
pcie.chipset_gpus texts | GPUs in slots of the chipset instead of the CPU
pcie.hidden_switches bool | a guest in which the PCIe switches above the GPUs do not appear
topology_file.default bool | the topology file exists that NCCL reads without being told
gpu.index int | number in PCI bus order
gpu.name text | model name
gpu.label text | GPU0, GPU1, …
gpu.address text | PCI address
gpu.compute_capability number | compute capability
gpu.architecture text | turing, ampere, ada, hopper, blackwell, …
gpu.geforce bool | a GeForce
gpu.form text | sxm, pcie, soc or mobile
gpu.memory_bytes int | memory in bytes
gpu.bar1_bytes int | BAR1 in bytes
gpu.bar1_covers_memory bool | BAR1 is at least as large as the memory
gpu.numa_node int | nearest NUMA node; -1 when the platform does not say
gpu.nvlinks.total int | NVLinks of this GPU as the driver lists them
gpu.nvlinks.active int | NVLinks that are up
gpu.nvlinks.inactive int | NVLinks that are down
gpu.nvlinks.gbps number | paper bandwidth of its active NVLinks together, GB/s per direction
gpu.nvlinks.expected int | NVLinks of this model
gpu.nvlinks.wanted int | NVLinks of this model, or where it is not known, gpu.nvlinks.peers_mode
gpu.nvlinks.peers_mode int | most frequent number of active NVLinks among the other GPUs of this model
gpu.nvlinks.errors int | replays, recoveries and CRC errors that the driver counts on its NVLinks
gpu.pcie.current_gen int | PCIe generation now; drops while idle
gpu.pcie.max_gen int | highest generation of device and slot together
gpu.pcie.device_max_gen int | highest generation of the device
gpu.pcie.current_width int | PCIe lanes now
gpu.pcie.max_width int | lanes of the device
gpu.pcie.port_width int | lanes of the port above the device
gpu.pcie.replays int | packets that its PCIe link sent again since the last reset
gpu.pcie.chipset bool | it sits in a slot of the chipset, not of the CPU
gpu.pcie.idle bool | performance state above 2: the generation is not comparable
gpu.fabric.state text | not-supported, not-started, in-progress, completed
gpu.fabric.status int | fabric status code; 0 is good
gpu.fabric.degraded bool | its fabric reports degraded bandwidth
gpu.fabric.route_unhealthy bool | its fabric reports an unhealthy route
gpu.local_cpus_allowed bool | this process may run on some CPU next to it
gpu.mig bool | MIG is on
gpu.measured.host_outcome text | ok, wrong-data, timeout, crashed, error, skipped; the worst of copies with the host
gpu.measured.host_gbps number | measured copy with host memory, GB/s, the slower direction; 0 when not measured
gpu.measured.host_usual_gbps number | what such copies reach elsewhere over a PCIe link of its generation and width
gpu.measured.host_verdict text | pass, warn, fail, unknown: copies with the host over these lanes, as `verify` judges
gpu.measured.host_cause text | why, and what looks like the cause; or empty
gpu.measured.host_failed bool | a copy from or to host memory timed out, crashed, failed or arrived changed
gpu.virtualization text | none, passthrough, vgpu, host-vgpu, host-vsga
gpu.c2c_gbps number | chip-to-chip link to the CPU, GB/s per direction
gpu.driver text | kernel driver bound to the PCI function
pair.a text | label of the first GPU
pair.b text | label of the second GPU
pair.link_class text | NV#, C2C, PIX, PXB, PHB, NODE or SYS
pair.pcie_class text | the link class without NVLink
pair.nccl_path text | NCCL's path type
pair.nvlinks int | NVLinks between the two
pair.through_switch bool | the NVLinks between the two run through NVSwitches
pair.gbps number | paper bandwidth of the best path, GB/s per direction
pair.same_numa bool | both are nearest to one NUMA node
pair.same_model bool | both have one model name
pair.p2p.read text | driver's answer about peer reads: OK, CNS, GNS, TNS, NS, DR, U; the worse direction
pair.p2p.write text | driver's answer about peer writes, likewise
pair.p2p.nvlink text | driver's answer about peer traffic over NVLink, likewise
pair.p2p.ok bool | reads and writes are OK in both directions
pair.p2p.refused bool | reads or writes are refused
pair.p2p.refused_way text | the only direction in which they are refused, such as GPU1→GPU0; empty for both or none
pair.path.bridges texts | addresses of the PCIe bridges between the two
pair.path.acs_redirect bool | ACS on a bridge between the two sends peer traffic up to the root complex
pair.path.acs_known bool | whether ACS redirects between the two could be read
pair.path.acs_bridges texts | bridges between the two on which ACS does that
pair.path.crosses_host bool | the PCIe path leaves the switches and crosses a host bridge
pair.nccl.transport text | transport that NCCL takes: P2P, SHM or NET (`predict` weighs a faster network, too)
pair.measured.uni_gbps number | measured peer copy, GB/s, the slower direction
pair.measured.bi_gbps number | measured peer copy both ways at once, GB/s in sum
pair.measured.outcome text | ok, wrong-data, timeout, crashed, error, skipped; the worst of the direct copies
pair.measured.staged_outcome text | the same of copies through host memory, with peer access off or not granted
pair.measured.failed bool | a direct copy timed out, crashed, failed or arrived changed
pair.measured.failed_copies texts | the direct copies that did, and how
pair.measured.peer_denied bool | CUDA allowed no peer access when copies were measured, although the driver grants it
pair.measured.verdict text | pass, warn, fail, unknown: copies over these links, as `verify` judges them
pair.measured.cause text | why, and what looks like the cause; or empty
pair.measured.usual_gbps number | what peer copies reach elsewhere over such a link, GB/s one way
pair.measured.slow_way text | the direction whose direct copy is slower by more than a tenth, else both GPUs
pair.measured.any bool | copies between the two were measured
pair.measured.p2p_gbps number | measured copy with peer access, GB/s, the slower direction
pair.measured.staged_gbps number | measured copy without peer access, GB/s, the slower direction
pair.measured.both_ways bool | the two were copied between with peer access and without
pair.measured.data_ok bool | data that was copied directly arrived unchanged
nic.name text | RDMA device name, else interface name
nic.label text | NIC0, … as `nvidia-smi` numbers it, else the name
nic.rdma bool | an RDMA device
nic.interface text | network interface
nic.state text | ACTIVE, DOWN, … of an RDMA port; up, down, … of an interface
nic.link_layer text | InfiniBand or Ethernet
nic.rate_gbit number | rate in Gbit/s
nic.driver text | kernel driver
nic.nearest_gpu text | label of the nearest GPU
nic.nearest_class text | link class to the nearest GPU
nic.mtu int | MTU in bytes
nic.packet_bytes int | largest RDMA packet: what the port says, else what the MTU of a RoCE interface leaves
nic.gpu_local bool | below one PCIe switch with some GPU
nic.siblings_active int | other active RDMA devices as near to a GPU
nic.numa_node int | NUMA node; -1 when the platform does not say
nic.kind text | physical, bridge, veth, bond, loopback, vlan, tunnel, virtual
nic.pcie.current_width int | PCIe lanes now
nic.pcie.max_width int | PCIe lanes of the card
nic.pcie.current_gts number | GT/s of a lane now
nic.pcie.max_gts number | GT/s of a lane at most
nic.link_downed int | how often its link went down since the counters were cleared
bridge.address text | PCI address
bridge.acs_redirect bool | ACS redirects requests or completions
bridge.link_width int | lanes now
bridge.max_link_width int | lanes at most
bridge.possible_width int | lanes that it and the port above it have both
bridge.link_speed_gts number | GT/s now
bridge.max_link_speed_gts number | GT/s at most
bridge.gpus_below int | GPUs below it
bridge.port_type text | root-port, upstream, downstream, …
variable.name text | name of the variable
variable.value text | value of the variable
variable.origin text | where the variable is set
variable.line int | line in that file; 0 when it is set in no file
variable.known bool | a name that NCCL reads
variable.class text | system, tuning, workaround or diagnostic; empty for what NCCL does not read
variable.parser text | how NCCL reads it: int, bool-int, level, list, …; empty for what it does not read
variable.integer int | the number that NCCL reads, for variables that are numbers
variable.since text | first NCCL release that reads it; empty when not known
variable.removed text | first NCCL release that no longer reads it; empty when none
variable.is_default bool | NCCL does the same when the variable is not set, whatever the machine
variable.selects texts | RDMA devices that NCCL_IB_HCA selects, or interfaces that NCCL_SOCKET_IFNAME selects
variable.omits texts | RDMA devices next to a GPU that NCCL_IB_HCA leaves out
variable.exact text | the same list with exact names, for those two
variable.missing texts | names in a value of GLOO_SOCKET_IFNAME or NCCL_IB_HCA that nothing here has
variable.unknown_words texts | what NCCL 2.24 and newer does not know in NCCL_ALGO or NCCL_PROTO
variable.needs_nvls bool | NCCL_ALGO leaves all_reduce nothing but NVLink SHARP (NVLS, NVLSTree)
variable.forces_ll128 bool | NCCL_PROTO enables LL128 past NCCL's safety check
variable.level text | NCCL level that the value becomes; empty when NCCL ignores it
variable.overridden bool | another setting of this name wins
variable.winner text | the value of this name that counts
variable.winner_origin text | where that value is set
variable.owner text | who reads it: NCCL, PyTorch, NVSHMEM, libfabric, …; empty when nobody is known to
variable.replacement text | the name that took its place; empty when none
variable.invented bool | a name in circulation that nobody reads
variable.instead text | what was probably meant by an invented name; empty when nothing like it exists
variable.nearest text | for a name that nobody is known to read, the nearest one that NCCL reads; empty when none
variable.bent bool | blanks, quotes or `export` that a shell would take away and a file of NCCL does not
variable.published bool | what the cloud's vendor publishes for some of its machines sets this variable
variable.vendor_state text | same, differs or stale beside what the machine's vendor publishes; empty for nothing
variable.vendor_stale bool | the machine's vendor has taken the variable out of its list
variable.vendor_value text | the published value, or what the vendor says of the variable now
variable.file_exists bool | the file exists that it names
"""


def _parse(table: str) -> dict[str, FactSpec]:
    facts: dict[str, FactSpec] = {}
    for line in table.strip().splitlines():
        head, _, meaning = line.partition(" | ")
        name, kind = head.split(" ")
        facts[name] = FactSpec(kind, meaning)  # type: ignore[arg-type]
    return facts


VOCABULARY: Final[dict[str, FactSpec]] = _parse(_TABLE)
"""Every fact but `env.NAME`."""

_PATHS: Final = "LOC|NVL|NVB|C2C|PIX|PXB|P2C|PXN|PHB|SYS|NET|DIS"
_CLASSES: Final = "PIX|PXB|PHB|NODE|SYS"
_ANSWERS: Final = "OK|CNS|GNS|TNS|NS|DR|U"
_ANSWER_FACTS: Final = ("pair.p2p.read", "pair.p2p.write", "pair.p2p.nvlink")
_LAYER_FACTS: Final = ("nic.link_layer", "rdma.link_layers", "rdma.local_link_layers")
_OUTCOME_FACTS: Final = ("pair.measured.outcome", "pair.measured.staged_outcome", "gpu.measured.host_outcome")
_VERDICT_FACTS: Final = ("pair.measured.verdict", "gpu.measured.host_verdict")
_SERVICES: Final = ("fabricmanager.state", "imex.state")
FORMS: Final[dict[str, str]] = {
    **dict.fromkeys(("nccl.default_p2p_level", "nccl.p2p_level", "pair.nccl_path"), _PATHS),
    **dict.fromkeys(("p2p.worst_nccl_path", "p2p.worst_nvlinkless_path", "variable.level"), f"{_PATHS}|"),
    **dict.fromkeys(("pair.pcie_class", "nic.nearest_class"), _CLASSES),
    "pair.link_class": f"NV[0-9]{{1,3}}|C2C|{_CLASSES}",
    **dict.fromkeys(("p2p.worst_class",), f"{_CLASSES}|"),
    "visible.gpus": "GPU[0-9]{1,4}",
    "visible.worst_class": f"NV[0-9]{{1,3}}|C2C|{_CLASSES}|",
    **dict.fromkeys(_ANSWER_FACTS, _ANSWERS),
    **dict.fromkeys(_LAYER_FACTS, "InfiniBand|Ethernet"),
    "pair.nccl.transport": "P2P|SHM|NET",
    "driver.flavour": "open|proprietary",
    **dict.fromkeys(_SERVICES, "active|inactive|failed|not-installed"),
    "job.symptom": "hang|slow|refused|crash|wrong-data|out-of-memory|",
    "gpu.fabric.state": "not-supported|not-started|in-progress|completed",
    "gpu.virtualization": "none|passthrough|vgpu|host-vgpu|host-vsga",
    "gpu.form": "sxm|pcie|soc|mobile",
    **dict.fromkeys(_OUTCOME_FACTS, "ok|wrong-data|timeout|crashed|error|skipped"),
    **dict.fromkeys(_VERDICT_FACTS, "pass|warn|fail|unknown"),
    "iommu.mode": "off|identity|DMA|DMA-FQ|blocked|unmanaged",
}
"""Facts that are one of a few words: the words as a regular expression. An empty word stands for nothing to say."""

_ANY_NUMBER: Final = ("variable.integer",)
_AT_LEAST_ONE: Final = ("cpu.sockets", "cpu.allowed", "numa.count", "gpu.memory_bytes", "nic.mtu", "nic.packet_bytes")
_ENDS: Final[dict[str, tuple[float, float]]] = {"_width": (1, 32), "_gen": (1, 9), "_gts": (0, 1e3)}
_MOST: Final[dict[str, float]] = {
    **dict.fromkeys(("gpus.count", "gpus.expected", "gpus.pci_count"), 128),
    **dict.fromkeys(("numa.count", "numa.gpu_nodes", "numa.without_memory"), 1024),
    "cpu.sockets": 1024,
    "job.nodes": 1e6,
}
"""What no operating system has more of, and no cluster."""


def bounds(name: str) -> tuple[float, float] | None:
    """Least and greatest value of a fact that is a number, both possible; None for one that may be any number, or none.

    Facts whose meaning says what -1 stands for may be -1; no other is below 0.
    """
    fact = VOCABULARY.get(name)
    if fact is None or fact.type not in ("int", "number") or name in _ANY_NUMBER:
        return None
    ends = next((ends for end, ends in _ENDS.items() if name.endswith(end)), None)
    if ends is not None:
        return ends
    least = 1 if name in _AT_LEAST_ONE else -1 if re.search(r"(?<!\w)-1\b", fact.meaning) else 0
    return least, _MOST.get(name, 2**63 - 1)


ROOTS: Final = frozenset(name.split(".", 1)[0] for name in VOCABULARY) | {"env"}


@lru_cache(maxsize=4096)
def kind_of(name: str) -> SubjectKind:
    """The subject kind that a fact name belongs to."""
    root = name.split(".", 1)[0]
    return next((kind for kind in KINDS[1:] if kind == root), "node")


def spec(name: str) -> FactSpec | None:
    """Type and meaning of a fact, None when there is no such fact."""
    if _ENVIRONMENT.fullmatch(name):
        return FactSpec("text", f"value of {name[4:]} in force; empty when it is not set")
    return VOCABULARY.get(name)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` was probably meant to be, None when nothing is close."""
    from difflib import get_close_matches

    known = list(candidates)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return close[0]
    return next((name for name in known if word and name.endswith(f".{word}")), None)


def suggestion(word: str, candidates: Iterable[str]) -> str | None:
    """A hint that names the nearest candidate, None when nothing is close."""
    found = nearest(word, candidates)
    return f"Did you mean `{found}`?" if found else None


def _words(text: str) -> set[str]:
    """Its words in small letters; a plural is the same word."""
    return {word.removesuffix("s") or word for word in re.findall(r"[a-z0-9]+", text.lower())}


def search(words: str) -> list[str]:
    """The facts with any of these words in their name, then those with one in their meaning; best first."""
    wanted = _words(words)
    ranked = []
    for place, (name, fact) in enumerate(VOCABULARY.items()):
        named = len(wanted & _words(name))
        meant = len(wanted & _words(fact.meaning))
        if named or meant:
            # What is observed on one device comes before what is derived from all of them.
            ranked.append((-named, kind_of(name) in ("node", "variable"), -meant, place, name))
    return [name for *_, name in sorted(ranked)]
