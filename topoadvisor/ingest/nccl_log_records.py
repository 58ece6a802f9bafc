"""What the reader of NCCL's log keeps while it reads: by process, by thread and by rank. All of it is bounded."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

from topoadvisor.ingest.nccl_log_summary import Cell, Place
from topoadvisor.ingest.nccl_log_topology import Printed

MAX_THREADS: Final = 65_536
MAX_MEMBERS: Final = 32_768
"""Ranks of communicators kept in detail. A rank's connections are a dozen short texts."""
MAX_TEXTS: Final = 400_000
"""Different connections kept, over all ranks."""
MAX_PER_MEMBER: Final = 8_192
MAX_TREE_BYTES: Final = 16 << 20
MAX_KINDS: Final = 2_000
"""Different warnings, settings or choices kept."""
MAX_TOPOLOGY_LINES: Final = 4_096
MAX_HOSTS: Final = 4_096
MAX_ENTRIES: Final = 16_384
"""Of tables with one entry for each host, or each GPU with each device."""
MAX_VOICES: Final = 1_000_000

CHANNEL: Final = re.compile(rb"([0-9]{1,3})(?:/[0-9]{1,3})?\s*")
MAX_CHANNEL: Final = 127
"""NCCL 2.30 has at most 64 channels (`MAXCHANNELS`)."""

GLUED: Final = "messages written into each other"
WITHOUT_ENDS: Final = "messages on lines that have lost their line ends"
OVERLONG: Final = "lines of more than 1 MiB"
UNREAD: Final = (GLUED, WITHOUT_ENDS, OVERLONG)
"""What may have been messages of NCCL, and could not be told apart."""


class Bits(dict[bytes, int]):
    """`03/0` → the bit of channel 3; 0 for what is no channel. Remembers a bounded number of texts."""

    def __missing__(self, text: bytes) -> int:
        match = CHANNEL.fullmatch(text[:16])
        number = int(match[1]) if match else MAX_CHANNEL + 1
        bit = 1 << number if number <= MAX_CHANNEL else 0
        if len(self) < MAX_KINDS:
            self[text] = bit
        return bit


@dataclass(slots=True)
class Tally:
    """How often something was said, by whom, and where first."""

    count: int = 0
    processes: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    place: Place | None = None


@dataclass(slots=True, eq=False)
class Process:
    """One process of the job; `host` None collects lines that name none."""

    number: int
    host: str | None
    pid: int | None
    version: str | None = None
    members: dict[bytes, Member] = field(default_factory=dict)
    """By address of the communicator."""
    last: dict[int, Member] = field(default_factory=dict)
    """The communicator that was initialised last, by CUDA device."""
    networks: set[str] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=dict)
    announces: bool = False
    """It prints `Init START`, as NCCL does since 2.18.3."""


@dataclass(slots=True, eq=False)
class Member:
    """One rank of one communicator."""

    process: Process
    device: int
    rank: int | None = None
    size: int | None = None
    key: tuple[str, ...] | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    bus: str | None = None
    started: bool = False
    complete: bool = False
    nodes: int | None = None
    mnnvl: bool | None = None
    nvls: bool | None = None
    channels: int | None = None
    nvls_channels: int | None = None
    rings: dict[bytes, int] = field(default_factory=dict)
    """Text behind `Channel NN :` up to `Connected all rings` → bits of the channels."""
    others: dict[bytes, int] = field(default_factory=dict)
    """The same after it: trees, send and receive."""
    neighbours: dict[bytes, int] = field(default_factory=dict)
    """`previous -> own -> next` → bits of the channels."""
    trees: bytes = b""
    collnet: set[str] = field(default_factory=set)
    tuner: list[Cell] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.rings or self.others or self.neighbours or self.trees)

    def can_be(self, a: int, b: int) -> bool:
        """Whether this rank can be one end of a connection from rank `a` to rank `b`."""
        return self.rank is not None and self.size is not None and self.rank in (a, b) and max(a, b) < self.size


@dataclass(slots=True, eq=False)
class Thread:
    """One thread of a process: whom its lines belong to."""

    process: Process
    device: int
    member: Member
    pairs: dict[bytes, int]
    """Where connections go: `member.rings` or `member.others`."""
    topology: list[bytes] | None = None
    """Lines of a tree that is being printed."""
    paths: Printed | None = None
    """The tree whose paths follow."""
    algorithms: list[str] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)


NO_VERBS: Final = "no libibverbs"
"""Why NCCL found no RDMA device: it could not open the library that lists them."""

Key = TypeVar("Key")
Table = dict[tuple[str, str], Tally]


@dataclass(slots=True)
class Records:
    """Everything kept."""

    processes: dict[tuple[str | None, int | None], Process] = field(default_factory=dict)
    threads: dict[tuple[str | None, int | None, int | None, int], Thread] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    members: list[Member] = field(default_factory=list)
    versions: Table = field(default_factory=dict)
    settings: Table = field(default_factory=dict)
    bootstrap: Table = field(default_factory=dict)
    ib_devices: Table = field(default_factory=dict)
    """By name and number."""
    ib_asked: bool = False
    ib_absent: Table = field(default_factory=dict)
    """Who looked for an RDMA device and found none."""
    cuda_driver: str | None = None
    sockets: Table = field(default_factory=dict)
    plugins: Table = field(default_factory=dict)
    gdr: Table = field(default_factory=dict)
    topologies: dict[str | None, Printed] = field(default_factory=dict)
    graphs: dict[tuple[str, ...], Tally] = field(default_factory=dict)
    """Pattern, cross NIC, channels, speeds and path types, as printed."""
    choices: Counter[bytes] = field(default_factory=Counter)
    operations: Counter[bytes] = field(default_factory=Counter)
    warnings: dict[tuple[str, bytes], Tally] = field(default_factory=dict)
    examples: dict[tuple[str, bytes], str] = field(default_factory=dict)
    xml: dict[str, str] = field(default_factory=dict)
    """`system` or `graphs` → the first such document."""
    texts: int = 0
    tree_bytes: int = 0
    voices: int = 0
    """Entries in the sets of all tallies."""
    info: bool = False
    nccl_lines: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """What was not kept, in words → how often."""

    def tally(self, table: dict[Key, Tally], key: Key, most: int | None = None) -> Tally | None:
        """The entry of a table, made when there is room; None when there is none."""
        entry = table.get(key)
        if entry is None and len(table) < (MAX_KINDS if most is None else most):
            entry = table[key] = Tally()
        return entry

    def say(self, tally: Tally | None, process: Process, place: Place | None) -> None:
        """Count one line for a tally; who said it is kept while there is room."""
        if tally is None:
            self.dropped["kinds of messages"] += 1
            return
        tally.count += 1
        if tally.place is None:
            tally.place = place
        if process.number not in tally.processes and self.voices < MAX_VOICES:
            self.voices += 1
            tally.processes.add(process.number)
            if process.host is not None:
                tally.hosts.add(process.host)

    def process(self, host: str | None, pid: int | None) -> Process:
        process = self.processes.get((host, pid))
        if process is None:
            if len(self.processes) >= MAX_THREADS:
                self.dropped["processes"] += 1
                host, pid = None, None
                process = self.processes.get((host, pid))
            if process is None:
                process = Process(len(self.processes), host, pid)
                self.processes[(host, pid)] = process
                if host is not None:
                    self.hosts.add(host)
        return process

    def member(self, process: Process, device: int) -> Member:
        """A new rank. When there is no room it is counted and forgotten at the end."""
        member = Member(process, device)
        if len(self.members) < MAX_MEMBERS:
            self.members.append(member)
        else:
            self.dropped["ranks of communicators"] += 1
        return member

    def thread(self, host: str | None, pid: int | None, tid: int | None, device: int) -> Thread:
        thread = self.threads.get((host, pid, tid, device))
        if thread is None:
            process = self.process(host, pid)
            member = process.last.get(device)
            if member is None and len(process.last) == 1:
                # Threads that serve a communicator may run with another current device.
                member = next(iter(process.last.values()))
            pairs = None
            if member is None:
                member = self.member(process, device)
            elif member.complete or member.others:
                pairs = member.others
            thread = Thread(process, device, member, member.rings if pairs is None else pairs)
            if len(self.threads) < MAX_THREADS:
                self.threads[(host, pid, tid, device)] = thread
        return thread
