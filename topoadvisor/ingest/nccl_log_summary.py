"""What a log of NCCL says, in one frozen document: the reader's product, and the basis of the verdict.

None means that the log does not show it. Lists are cut at the sizes given here, and `notes` say so.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA: Final = "topoadvisor.log/1"

MAX_COMMUNICATORS: Final = 32
"""Shown in full, the largest first; a training job makes hundreds that are alike."""
MAX_WARNINGS: Final = 100
MAX_CHOICES: Final = 500


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all types of the log."""


class Place(Struct, frozen=True, kw_only=True):
    """Where something stands."""

    file: str
    line: int


class Version(Struct, frozen=True, kw_only=True):
    """One NCCL version, and how many processes said that they run it."""

    version: str
    cuda: str | None = None
    """The CUDA version NCCL was built with."""
    processes: int = 0
    """0: a line without a process, as older releases print it once for the whole job."""
    hosts: list[str] = []


class SettingSeen(Struct, frozen=True, kw_only=True):
    """One variable with one value, as NCCL printed it: integers after its parser, so `8M` stands here as 8."""

    name: str
    value: str
    processes: int
    hosts: list[str] = []
    origin: str | None = None
    """Where it is set, when a topology source says so. The log itself calls files and environment `environment`."""
    place: Place | None = None


class Interface(Struct, frozen=True, kw_only=True):
    """One network interface or device that NCCL chose, and how many processes did."""

    name: str
    address: str | None = None
    index: int | None = None
    """NCCL's number of an RDMA device."""
    processes: int = 0
    hosts: list[str] = []


class Plugin(Struct, frozen=True, kw_only=True):
    """The network that carries a communicator, or a plugin that was loaded."""

    kind: Literal[
        "network", "net plugin", "net plugin release", "collnet plugin", "tuner plugin", "profiler plugin", "env plugin"
    ]
    name: str
    processes: int = 0
    hosts: list[str] = []


class Gdr(Struct, frozen=True, kw_only=True):
    """GPUDirect RDMA: allowed or not, for a network device or for one GPU with one device."""

    device: str
    """Name of the device (`mlx5_0`), or its number where NCCL prints only that."""
    enabled: bool
    gpu: str | None = None
    """PCI address, or rank since NCCL 2.24; None: said of the device as such."""
    distance: int | None = None
    limit: int | None = None
    path: str | None = None
    """The distance in words (`PHB`), when the version is known."""
    limit_path: str | None = None
    module_missing: bool = False
    """NCCL said `no module`."""
    count: int = 1
    hosts: list[str] = []

    @property
    def hca(self) -> str:
        """The device in a sentence."""
        return f"HCA {self.device}" if set(self.device) <= set("0123456789abcdef") else self.device


class Node(Struct, frozen=True, kw_only=True):
    """One device in the tree that NCCL prints with `NCCL_DEBUG_SUBSYS=GRAPH`."""

    kind: str
    """`CPU`, `PCI`, `GPU`, `NIC`, `NET`, `NVS`."""
    id: str
    """As printed: `0-60`, or `60` before 2.21."""
    address: str | None = None
    """PCI address of a GPU or PCI switch."""
    rank: int | None = None
    parent: str | None = None
    """`KIND/id` of the node above."""
    gbps: float | None = None
    """Of the link to the node above."""
    cpu: tuple[int, int, int] | None = None
    """NCCL's numbers of architecture, vendor and model."""


class Wire(Struct, frozen=True, kw_only=True):
    """A link beside the PCI tree: `NVL`, `C2C`, `SYS`, `NET`."""

    a: str
    b: str
    kind: str
    gbps: float


class Path(Struct, frozen=True, kw_only=True):
    """NCCL's path between two devices."""

    a: str
    b: str
    type: str
    gbps: float


class HostTopology(Struct, frozen=True, kw_only=True):
    """One host as NCCL saw it."""

    host: str | None
    nodes: list[Node] = []
    wires: list[Wire] = []
    paths: list[Path] = []
    max_gbps: float | None = None


class Graph(Struct, frozen=True, kw_only=True):
    """One result of NCCL's search (a `Pattern` line)."""

    pattern: str
    """`ring`, `tree`, `balanced tree`, `split tree`, `nvls`, `collnet direct`, or the number."""
    channels: int
    intra_gbps: float
    inter_gbps: float
    intra: str
    inter: str
    cross_nic: int | None = None
    hosts: list[str] = []


class Rank(Struct, frozen=True, kw_only=True):
    """One rank of a communicator, as far as it printed anything."""

    rank: int
    host: str | None = None
    pid: int | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    address: str | None = None
    """PCI address of its GPU."""
    complete: bool = False
    """It printed `Init COMPLETE`."""


class Connection(Struct, frozen=True, kw_only=True):
    """What carries data from rank `a` to rank `b`."""

    a: int
    b: int
    transport: str
    """`P2P`, `SHM`, `NET`, `COLLNET`."""
    via: str
    """As NCCL prints it, without the number of the device: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB`."""
    channels: int
    devices: list[int] = []
    """Network devices used."""
    gdr: Literal["on", "off", "mixed"] | None = None
    """GPUDirect RDMA at the ends that the log shows; None for other transports than the network."""
    proxy: bool = False
    """Another rank of the node sends for this one (PXN)."""
    same_host: bool | None = None


class Ring(Struct, frozen=True, kw_only=True):
    """Ranks in ring order."""

    order: list[int]
    channels: list[int]
    """The channels that run it."""
    complete: bool = True
    """False: the line is cut, as NCCL cuts it at 128 letters, and the connections do not give the rest."""
    origin: Literal["printed", "neighbours", "connections"] = "printed"


class Tree(Struct, frozen=True, kw_only=True):
    """One tree: for each rank its parent; -1 for the root, None when that rank printed nothing."""

    parents: list[int | None]
    channels: list[int]


class Cell(Struct, frozen=True, kw_only=True):
    """One cell of the tuner's table."""

    collective: str
    algorithm: str
    protocol: str
    latency_us: float
    gbps: float
    """Algorithm bandwidth; 0 = not allowed."""


class Communicator(Struct, frozen=True, kw_only=True):
    """One communicator."""

    id: str
    """NCCL's commId, or made up here (`#1`) for versions that print none."""
    size: int
    at_least: bool = False
    """The log does not say how many ranks there are; `size` is the least that its connections need."""
    ranks: list[Rank]
    """Those that the log names."""
    complete: int
    """Ranks that printed `Init COMPLETE`."""
    started: int
    """Ranks that printed `Init START`, which NCCL does since 2.18.3."""
    nodes: int | None = None
    channels: int | None = None
    nvls_channels: int | None = None
    nvls: bool | None = None
    """NVLink SHARP multicast is available."""
    mnnvl: bool | None = None
    connections: list[Connection] = []
    collnet: list[str] = []
    rings: list[Ring] = []
    trees: list[Tree] = []
    tuner: list[Cell] = []


class Choice(Struct, frozen=True, kw_only=True):
    """What the tuner chose for sizes from `min_bytes` to `max_bytes` that the job really used."""

    collective: str
    algorithm: str
    protocol: str
    min_bytes: int
    max_bytes: int
    channels: int | None
    count: int


class Warned(Struct, frozen=True, kw_only=True):
    """Messages of one kind that differ only in numbers and addresses."""

    kind: str
    """`network timeout`, `connection lost`, `CUDA failure`, …"""
    severity: Literal["error", "warning", "info"]
    message: str
    """The first of them."""
    count: int
    place: Place
    hosts: list[str] = []


class Summary(Struct, frozen=True, kw_only=True):
    """The whole log."""

    schema: Literal["topoadvisor.log/1"] = "topoadvisor.log/1"
    files: list[str] = []
    size_bytes: int = 0
    lines: int = 0
    nccl_lines: int = 0
    info: bool = False
    """There are messages of level INFO, so that what is not printed can mean something."""
    unread: int = 0
    """Messages and overlong lines that could not be told apart, because their line ends are lost."""
    processes: int = 0
    hosts: list[str] = []
    versions: list[Version] = []
    cuda_driver: str | None = None
    """The CUDA version that the driver supports, `13.0`."""
    settings: list[SettingSeen] = []
    bootstrap: list[Interface] = []
    ib_devices: list[Interface] = []
    """`mlx5_0:1/IB`, `mlx5_0:1/RoCE`. Empty with `ib_asked`: NCCL looked and found none."""
    ib_asked: bool = False
    ib_absent_on: list[str] = []
    """Hosts on which NCCL looked for an RDMA device and found none."""
    verbs_missing_on: list[str] = []
    """Those of them on which it could not open libibverbs, which lists the devices."""
    socket_interfaces: list[Interface] = []
    plugins: list[Plugin] = []
    gdr: list[Gdr] = []
    topologies: list[HostTopology] = []
    topology_xml: str | None = None
    """A `<system>` document that was printed into the log."""
    graph_xml: str | None = None
    graphs: list[Graph] = []
    communicators: list[Communicator] = []
    communicators_seen: int = 0
    transports: dict[str, int] = {}
    """`via` → ordered pairs of ranks, over all communicators."""
    choices: list[Choice] = []
    operations: dict[str, int] = {}
    """Collective → calls, when `NCCL_DEBUG_SUBSYS` has COLL."""
    warnings: list[Warned] = []
    notes: list[str] = []
    """What could not be read, or was cut."""

    @property
    def told_topology(self) -> str | None:
        """The file that NCCL was told to begin its topology with: what it prints is not all read from the machine."""
        told = [f"{each.name}={each.value}" for each in self.settings if each.name == "NCCL_TOPO_FILE"]
        return ", ".join(told) or None
