"""The snapshot: everything that was read about one machine, as one JSON document.

Conventions, for every type here:

* `None` means *not read*; the reason is in the source's status or in its `errors`.
  An empty list means *read, and there are none*.
* Bandwidth is GB/s (10⁹ bytes per second) per direction, sizes are bytes,
  PCI addresses are as `pci.normalize` spells them.
* GPUs are numbered in PCI bus order, as NVML and `nvidia-smi` number them (not as CUDA does).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from topoadvisor.errors import InputError
from topoadvisor.fields import Count, Int, Positive
from topoadvisor.files import write_atomically
from topoadvisor.measurements.model import Measurement, Trial

SCHEMA: Final = "topoadvisor.snapshot/1"

Status = Literal["ok", "partial", "absent", "failed"]


MAX_INDEX: Final = 9999
"""Far above the GPUs of any one operating system."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all snapshot types: immutable, strict about unknown keys, silent about defaults when written."""


LOST: Final = "GpuIsLost"
"""NVML's answer about a GPU that fell off the bus."""


class CallError(Struct, frozen=True, kw_only=True):
    """One call that failed inside a source that went on."""

    call: str
    """What was asked, for example `nvmlDeviceGetNumaNodeId`."""
    error: str
    """The source's own name of the error, for example `NotSupported`."""
    subject: str | None = None
    """Whom it was asked about: `gpu:0`, `gpu:0>gpu:1`, `gpu:0/link:3`."""
    code: Int | None = None


class Source(Struct, frozen=True, kw_only=True):
    """One place that facts came from, and how asking it went."""

    name: str
    """`nvml`, `nvidia-smi topo -m`, `sysfs`, `procfs`, `dmi`, `nccl`, `environment`, `paste`, `nccl-topology-xml`, …"""
    status: Status
    reason: str | None = None
    """Why it is not `ok`, in one sentence."""
    seconds: float | None = None
    errors: list[CallError] = []


class RawText(Struct, frozen=True, kw_only=True):
    """The text a source printed, kept so that a better parser can read an old capture again."""

    source: str
    text: str


class PcieLink(Struct, frozen=True, kw_only=True):
    """A PCIe link. `current_gen` drops while the device idles; width does not."""

    current_gen: Positive | None = None
    max_gen: Positive | None = None
    """Highest generation that device *and* slot reach together."""
    device_max_gen: Positive | None = None
    """Highest generation the device alone reaches."""
    current_width: Positive | None = None
    max_width: Positive | None = None


class NvLink(Struct, frozen=True, kw_only=True):
    """One NVLink of one GPU."""

    link: Int
    active: bool | None = None
    generation: str | None = None
    """`1.0`, `2.0`, `2.2`, `3.0`, `3.1`, `4.0`, `5.0`, `6.0`."""
    raw_mbps: Int | None = None
    """Line rate per direction in MB/s as the driver states it; above payload on generations 4 and 5."""
    remote_type: Literal["gpu", "switch", "npu"] | None = None
    remote_address: str | None = None
    """PCI address of the peer; None when not read or when the peer is outside this operating system."""
    remote_hidden: bool = False
    """The peer answered with the all-ones address: it exists, but the hypervisor or the fabric hides it."""
    replay_errors: Int | None = None
    recovery_errors: Int | None = None
    crc_errors: Int | None = None


class Fabric(Struct, frozen=True, kw_only=True):
    """NVSwitch or multi-node NVLink fabric registration of one GPU."""

    state: Literal["not-supported", "not-started", "in-progress", "completed"] | None = None
    status: Int | None = None
    cluster_uuid: str | None = None
    """None also when all zero, which is no identity."""
    clique: Int | None = None
    health_mask: Int | None = None


class Gpu(Struct, frozen=True, kw_only=True):
    """One NVIDIA GPU."""

    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_INDEX)]
    name: str | None = None
    address: str | None = None
    uuid: str | None = None
    pci_device: str | None = None
    """`0x2335`."""
    brand: str | None = None
    compute_capability: str | None = None
    """`9.0`."""
    memory_bytes: Count | None = None
    bar1_bytes: Count | None = None
    pcie: PcieLink | None = None
    numa_node: Int | None = None
    """Nearest NUMA node with CPUs; -1 when the platform says that it does not know."""
    memory_numa_node: Int | None = None
    """NUMA node that the GPU's own memory forms (Grace, POWER9); None elsewhere."""
    cpu_affinity: str | None = None
    nvlinks: list[NvLink] | None = None
    c2c_gbps: float | None = None
    """Chip-to-chip link to the CPU, payload per direction; 0 when there is none."""
    fabric: Fabric | None = None
    mig: bool | None = None
    virtualization: Literal["none", "passthrough", "vgpu", "host-vgpu", "host-vsga"] | None = None
    performance_state: Int | None = None
    """0 (fastest) to 15; PCIe generation is not comparable above 2 or so."""
    pcie_replays: Int | None = None


class P2p(Struct, frozen=True, kw_only=True):
    """What the driver says about one *ordered* pair: OK, CNS, GNS, TNS, NS, DR (disabled by registry key), U."""

    a: Int
    b: Int
    read: str | None = None
    write: str | None = None
    nvlink: str | None = None
    atomics: str | None = None
    pci: str | None = None
    disputed: dict[str, list[str]] = {}
    """Capability → the answers of texts that contradict each other; it is None then, for none is believed."""
    common_ancestor: str | None = None
    """NVML's level, in `nvidia-smi` words: `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; `X` for one board."""


class PciDevice(Struct, frozen=True, kw_only=True):
    """One PCI function that matters here: bridge, GPU, NIC, NVSwitch, DMA engine, storage beside them."""

    address: str
    class_code: str | None = None
    """`0x060400`."""
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    """NCCL tells Broadcom's switches by these."""
    parent: str | None = None
    """Address of the bridge above; None directly below a root complex (see `root`)."""
    root: str | None = None
    """Root complex as sysfs names it without the prefix: `0000:16`."""
    driver: str | None = None
    numa_node: Int | None = None
    link_speed_gts: float | None = None
    link_width: Count | None = None
    link_gbps: float | None = None
    """The link as it was, GB/s after line coding, where a source tells speed and width only together."""
    max_link_speed_gts: float | None = None
    max_link_width: Count | None = None
    iommu_group: str | None = None
    port_type: str | None = None
    """`root-port`, `upstream`, `downstream`, `endpoint`, … when the PCIe capability could be read."""
    acs_redirect: bool | None = None
    """ACS request or completion redirect is switched on. Needs root; None when not readable."""
    sriov_of: str | None = None
    """Address of the physical function when this is a virtual one."""


class NumaNode(Struct, frozen=True, kw_only=True):
    id: Int
    cpus: str | None = None
    """`0-31,64-95`; empty text when the node has no CPU."""
    memory_bytes: Count | None = None
    distances: list[Int] | None = None
    """Firmware distances to every online node, in the order of node ids."""


class IbPort(Struct, frozen=True, kw_only=True):
    port: Int
    state: str | None = None
    """`ACTIVE`, `DOWN`, `INIT`, `ARMED`."""
    physical_state: str | None = None
    rate_gbit: float | None = None
    link_layer: str | None = None
    """`InfiniBand` or `Ethernet` (RoCE)."""
    active_mtu: Int | None = None
    """Largest RDMA packet that the port sends, in bytes."""
    link_downed: Int | None = None
    """How often the link went down since the counters were cleared."""
    gid_types: dict[str, str] | None = None
    """GID index → `IB/RoCE v1` or `RoCE v2`, for the indexes in use."""


class Nic(Struct, frozen=True, kw_only=True):
    """One network interface or RDMA device; an RDMA device and its interface are one entry."""

    name: str
    """RDMA device name when there is one (`mlx5_0`), else the interface name (`eth0`)."""
    interface: str | None = None
    interface_index: Int | None = None
    """The kernel's number of the interface; programs that list interfaces, NCCL too, see them in this order."""
    rdma: bool = False
    address: str | None = None
    driver: str | None = None
    state: str | None = None
    """Interface `operstate`."""
    speed_mbit: Int | None = None
    mtu: Int | None = None
    kind: str | None = None
    """`physical`, `bridge`, `veth`, `bond`, `loopback`, `vlan`, `tunnel`, `virtual`."""
    ports: list[IbPort] | None = None
    numa_node: Int | None = None
    gdr: bool | None = None
    """GPUDirect RDMA support as an NCCL dump states it."""


class Cpu(Struct, frozen=True, kw_only=True):
    architecture: str | None = None
    """`x86_64`, `aarch64`, `ppc64le`."""
    vendor: str | None = None
    """`Intel`, `AMD`, `Arm`, `IBM`, `Zhaoxin`, `NVIDIA`, or as read."""
    model_name: str | None = None
    family: Int | None = None
    model: Int | None = None
    sockets: Int | None = None
    online: str | None = None
    """Online logical CPUs, `0-63`."""


class IommuGroup(Struct, frozen=True, kw_only=True):
    id: str
    type: str | None = None
    """`DMA`, `DMA-FQ`, `identity`, …"""
    devices: list[str] = []


class Host(Struct, frozen=True, kw_only=True):
    """The machine around the GPUs."""

    hostname: str | None = None
    kernel: str | None = None
    distribution: str | None = None
    command_line: str | None = None
    cpu: Cpu | None = None
    numa_nodes: list[NumaNode] | None = None
    dmi: dict[str, str] | None = None
    """`sys_vendor`, `product_name`, `board_vendor`, `board_name`, `bios_version`, `chassis_asset_tag`, …"""
    hypervisor: str | None = None
    """`KVM`, `VMware`, `Microsoft`, `Xen`, `none`, or the text read."""
    container: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`, `wsl`, `none`."""
    iommu_groups: list[IommuGroup] | None = None
    modules: list[str] | None = None
    memlock_bytes: Int | None = None
    """Soft limit of locked memory; -1 = unlimited."""
    open_files: Int | None = None
    """Soft limit of open files; -1 = unlimited."""
    stack_bytes: Int | None = None
    shm_total_bytes: Count | None = None
    shm_free_bytes: Count | None = None
    allowed_cpus: str | None = None
    default_interface: str | None = None
    """Interface of the IPv4 default route."""
    services: dict[str, str] | None = None
    """Service name → `active`, `inactive`, `failed`, `not-installed`; for `nvidia-fabricmanager`, `nvidia-imex`."""
    topology_file: bool | None = None
    """`/var/run/nvidia-topologyd/virtualTopology.xml`, which NCCL reads by default, exists."""
    nvswitch_control: bool | None = None
    """`/dev/nvidia-nvswitchctl` exists: NVSwitches are driven from this operating system."""
    fabric_manager: str | None = None
    """Version of the installed fabric manager."""
    governor: str | None = None
    """Frequency governor of the first CPU: `performance`, `powersave`, `schedutil`."""
    numa_balancing: bool | None = None
    """The kernel moves pages between NUMA nodes by itself."""
    capabilities: list[str] | None = None
    """Of `IPC_LOCK` and `SYS_NICE` those that this process holds."""
    uverbs: Int | None = None
    """`/dev/infiniband/uverbs*` that are here."""
    paths: dict[str, bool] | None = None
    """Files of cloud vendors and NVIDIA's devices (`hardware.vendor_files`) → whether they exist here."""
    network_plugins: list[str] | None = None
    """NCCL network plugins (`libnccl-net*.so`) in the loader's folders."""


class Driver(Struct, frozen=True, kw_only=True):
    version: str | None = None
    flavour: Literal["open", "proprietary"] | None = None
    banner: str | None = None
    """First line of `/proc/driver/nvidia/version`."""
    cuda: str | None = None
    """Highest CUDA version the driver supports, `13.0`."""
    parameters: dict[str, str] | None = None
    """Chosen lines of `/proc/driver/nvidia/params`: `EnableStreamMemOPs`, `RegistryDwords`, …"""
    confidential: Literal["off", "on"] | None = None
    """Confidential computing."""


class NcclLibrary(Struct, frozen=True, kw_only=True):
    path: str
    version: str | None = None
    """`2.28.9`."""
    read_by: str | None = None
    """How the version was read: `ncclGetVersion`, `file name`, `strings`, `package metadata`."""


class Setting(Struct, frozen=True, kw_only=True):
    """One `NAME=VALUE` in force or waiting in a file, with where it stands. Order is precedence: first wins."""

    name: str
    value: str
    origin: str
    """`environment`, a file path, `assumed`, or `nccl-log`."""
    line: Int | None = None
    managed: bool = False
    """It stands in the block of the file that `topoadvisor emit` writes."""
    exists: bool | None = None
    """Whether the file exists that the value names, for variables that name one."""

    @property
    def place(self) -> str:
        """Where it stands, `environment` or `/etc/nccl.conf:3`."""
        return self.origin if self.line is None else f"{self.origin}:{self.line}"


def places(settings: Sequence[Setting] | None, name: str) -> str | None:
    """Where a variable is set, the place that wins first: `environment and /etc/nccl.conf:3`; None = nowhere known."""
    return " and ".join(dict.fromkeys(each.place for each in settings or () if each.name == name)) or None


LOG: Final = "nccl-log"
"""Origin of a snapshot, a setting or a library that a log of NCCL shows."""


def only_logged(settings: Sequence[Setting] | None) -> bool:
    """They are those that a log shows, which were set and came into use: of any other nothing is known."""
    return bool(settings) and all(setting.origin == LOG for setting in settings or ())


class DamagedCell(Struct, frozen=True, kw_only=True):
    row: str
    column: str
    text: str
    line: Int
    text_column: Int


class Matrix(Struct, frozen=True, kw_only=True):
    """One `nvidia-smi topo -m` table as printed."""

    gpus: list[str]
    nics: list[str]
    cells: dict[str, dict[str, str]]
    """Row → column → relation, self cells left out."""
    cpu_affinity: dict[str, str | None] = {}
    """GPU → text as printed; None = the column exists and the cell is empty; `{}` = no such column."""
    numa_affinity: dict[str, str | None] = {}
    gpu_numa_id: dict[str, str | None] = {}
    nic_legend: dict[str, str] = {}
    others: dict[str, str | None] = {}
    """Devices of other classes (`NVMe0`) in column order, with their name from the legend."""
    damaged: list[DamagedCell] = []
    first_line: Int | None = None
    other_machine: bool = False
    """It stands behind the matrix of another machine in one text: shown, and not used."""


ON_COMMAND_LINE: Final = "--assume"


class Assumption(Struct, frozen=True, kw_only=True):
    """A fact that the user supplied because the source cannot hold it."""

    fact: str
    value: Any
    origin: str = ON_COMMAND_LINE
    """`--assume`, or file and line."""
    follows: bool = False
    """It was not said, but follows from another fact that was."""
    read: Any = None
    """The value that it replaces where another one was read; None = none."""

    def refused(self, wanted: str, hint: str | None) -> InputError:
        """The error for a value of another form: the fact `wanted` (is …), not this value."""
        value = self.value
        given = repr(", ".join(map(str, value)) if isinstance(value, list) else value)
        shown = given if len(given) <= 60 else f"{given[:60]}…"
        where = None if self.origin == ON_COMMAND_LINE else self.origin
        return InputError(f"the assumed fact `{self.fact}` {wanted}, not {shown}", file=where, hint=hint)


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything that was read about one machine."""

    schema: Literal["topoadvisor.snapshot/1"] = "topoadvisor.snapshot/1"
    origin: str = "live"
    """`live`, or the kind of foreign input: `matrix`, `text` (other or several outputs), `nccl-topology-xml`,
    `hwloc-xml`, `nccl-log`."""
    captured_at: str | None = None
    """UTC, ISO 8601."""
    tool: str | None = None
    redacted: bool = False
    sources: list[Source] = []
    gpus: list[Gpu] = []
    p2p: list[P2p] | None = None
    nics: list[Nic] | None = None
    pci: list[PciDevice] | None = None
    host: Host = Host()
    driver: Driver = Driver()
    nccl_libraries: list[NcclLibrary] | None = None
    settings: list[Setting] | None = None
    matrices: list[Matrix] = []
    measurements: list[Measurement] = []
    trials: list[Trial] = []
    assumptions: list[Assumption] = []
    raw: list[RawText] = []
    origins: dict[str, str] = {}
    """Where several texts were put together: value (`gpu:0.pcie.max_gen`, `driver.version`) → source that said it."""

    def source(self, name: str) -> Source | None:
        """The status of one source, or None when it was never asked."""
        return next((source for source in self.sources if source.name == name), None)

    def lost_gpus(self) -> list[int] | None:
        """Indexes of the GPUs that NVML calls lost; None when it was not asked or did not start."""
        nvml = self.source("nvml")
        if nvml is None or nvml.status not in ("ok", "partial"):
            return None
        said = {(error.subject or "").partition("/")[0] for error in nvml.errors if error.error == LOST}
        return [gpu.index for gpu in self.gpus if f"gpu:{gpu.index}" in said]


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot as plain values, the schema name first."""
    return {"schema": snapshot.schema, **msgspec.to_builtins(snapshot)}


def encode(snapshot: Snapshot) -> bytes:
    """The snapshot as indented JSON, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(document(snapshot)), indent=1) + b"\n"


def decode(data: bytes, *, file: str = "snapshot") -> Snapshot:
    """Read a snapshot back.

    Raises InputError with the JSON path of a wrong type or unknown key, or with line and column of broken JSON.
    """
    try:
        return msgspec.json.decode(data, type=Snapshot)
    except msgspec.ValidationError as error:
        raise InputError(
            f"this is not a {SCHEMA} document: {error}",
            file=file,
            hint="Was it changed by hand, or written by another version of topoadvisor? `topoadvisor capture` writes a "
            "fresh one.",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        line, column, there = _broken_at(data, str(error))
        word = _NO_NUMBER.match(there)
        raise InputError(
            f"{word[0].decode()} is no number in JSON" if word else "the JSON is broken here, or ends too early",
            file=file,
            line=line,
            column=column,
            hint="A value that was not measured is null, or is left out."
            if word
            else "The file may have been cut while it was copied; capture or copy it again.",
        ) from None


_NO_NUMBER: Final = re.compile(rb"-?(NaN|Infinity|nan|inf)\b")


def _broken_at(data: bytes, message: str) -> tuple[int, int, bytes]:
    """Line, column, and what stands there."""
    match = re.search(r"byte (\d+)", message)
    offset = min(int(match.group(1)), len(data)) if match else len(data)
    before = data[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1, data[offset : offset + 16]


def save(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot to a file in one step. Raises OSError."""
    write_atomically(path, encode(snapshot))
