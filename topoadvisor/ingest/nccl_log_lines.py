"""What each message of NCCL says, by the formats of NCCL 2.4 to 2.30 (`src/init.cc`, `src/graph`, `src/transport`).

The texts of connections are kept as they are and read at the end, because a log repeats them a million times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from topoadvisor.ingest import nccl_log_topology as topology
from topoadvisor.ingest import nccl_log_tuner, nccl_log_warnings
from topoadvisor.ingest.nccl_log_records import (
    MAX_ENTRIES,
    MAX_HOSTS,
    MAX_KINDS,
    MAX_PER_MEMBER,
    MAX_TEXTS,
    MAX_TOPOLOGY_LINES,
    MAX_TREE_BYTES,
    NO_VERBS,
    Bits,
    Member,
    Process,
    Records,
    Table,
    Tally,
    Thread,
)
from topoadvisor.ingest.nccl_log_summary import Place

_RANK: Final = re.compile(rb"comm (0x[0-9a-f]{1,16}) rank ([0-9]{1,7}) n[rR]anks ([0-9]{1,7})\b")
_FIELD: Final = re.compile(
    rb"\b(cudaDev|nvmlDev|busId|commId|parent|splitCount|color|nNodes|MNNVL) (?:0x)?([0-9a-fA-F]{1,16})"
)
_SETTING: Final = re.compile(rb"(NCCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (.{0,2000})")
_RESET: Final = re.compile(rb"(NCCL_[A-Z0-9_]{1,60})=(.{0,200})")
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}\.")
_VERSION: Final = re.compile(
    rb"NCCL version ([0-9]{1,3}(?:\.[0-9]{1,3}){1,3})[0-9A-Za-z.~-]{0,20}(?:\+cuda([0-9.]{1,8}))?"
)
_INTERFACE: Final = re.compile(rb" (?:\[[0-9]{1,4}\])?([^\s:\[\]]{1,64}):(\S{1,120}?)<[0-9]{1,6}>")
_OWN_NETWORK: Final = re.compile(rb"Using ([^\s:<]{1,64}:[0-9]{1,3})\s*$")
_OFI: Final = re.compile(rb"NET/OFI .{0,40}(aws-ofi-nccl [0-9][0-9A-Za-z.-]{0,20})")
_OFI_SETS: Final = re.compile(
    rb"NET/OFI (?:.{0,80}? )?(NCCL_[A-Z0-9_]{1,60}) environment variable (?:is already set )?to (\S{1,300})"
)
_DEVICE: Final = re.compile(rb"\[([0-9]{1,4})\]([^\s\[\];]{1,120})")
_GDR: Final = re.compile(rb"GPU Direct RDMA (?:Enabled|Disabled) for .{1,200}")
_ALLOWED: Final = re.compile(rb"(Enabled for )GPU [0-9a-f]{1,16}(?:\[[0-9]{1,4}\])? / (?=HCA )")
_DRIVER: Final = re.compile(rb"cudaDriverVersion ([0-9]{4,6})\b")
_LOADED: Final = re.compile(rb"(net|collnet|coll) plugin (.{1,80}?)(?: \(v[0-9]{1,3}\))?$")
_USING: Final = re.compile(rb"(TUNER|PROFILER|ENV)/Plugin: (?:Using|Loaded) (.{1,80}?)(?: \(v[0-9]{1,3}\))?$")
_CHANNELS: Final = re.compile(rb"([0-9]{1,4}) (coll|nvls) channels")
_PATTERN: Final = re.compile(
    rb"Pattern ([0-9]{1,2}), crossNic ([0-9]{1,2}), nChannels ([0-9]{1,4}), (?:bw|speed) "
    rb"([0-9]{1,9}(?:\.[0-9]{1,9})?)/([0-9]{1,9}(?:\.[0-9]{1,9})?), type ([A-Z0-9]{3})/([A-Z0-9]{3})"
)
_ENDS: Final = re.compile(rb"([0-9]{1,7})(?:\[[0-9a-f]{1,16}\])? -> ([0-9]{1,7})")
_REPEATED: Final = re.compile(rb"\s*\[repeated [0-9]{1,9}x across cluster\].*|\s+$")
"""Ray folds equal lines of several workers into one."""
_MAX_OPEN: Final = 64
"""Communicators of one process that late lines may belong to."""
_MAX_SETTINGS: Final = 512
"""Of one process: NCCL has half as many variables."""

Handler = Callable[["Lines", Thread, bytes, int], None]


def text(data: bytes) -> str:
    """Bytes of a log as text."""
    return data.decode("utf-8", "replace").strip()


class Lines:
    """Puts what lines say into the records."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.file = ""
        self.bits = Bits()

    def connection(self, thread: Thread, rest: bytes, bit: int) -> None:
        """The first time that a thread shows this ring, or this connection."""
        rest = _REPEATED.sub(b"", rest)
        self._find_member(thread, rest)
        self._keep(thread.pairs, rest, bit)

    def _ring(self, thread: Thread, body: bytes, number: int) -> None:
        """`Ring NN : 1 -> 0 -> 1`; NCCL before 2.7 says `Ring` for connections too."""
        colon = body.find(b" : ")
        rest, bit = body[colon + 3 :], self.bits[body[5:colon]]
        if b" via " in rest:
            self.connection(thread, rest, bit)
        elif bit:
            self._keep(thread.member.neighbours, rest, bit)

    def _keep(self, table: dict[bytes, int], rest: bytes, bit: int) -> None:
        known = table.get(rest)
        if known is not None:
            table[rest] = known | bit
        elif self.records.texts >= MAX_TEXTS or len(table) >= MAX_PER_MEMBER or len(rest) > MAX_PER_MEMBER:
            self.records.dropped["connections"] += 1
        elif bit:
            self.records.texts += 1
            table[rest] = bit

    def _find_member(self, thread: Thread, rest: bytes) -> None:
        """Move a thread to the communicator that a connection belongs to, when it is plainly not the thread's own.

        NCCL connects late, from whichever thread needs it, and does not say for which communicator.
        """
        ends = _ENDS.match(rest)
        if ends is None or not thread.process.announces:
            return
        a, b = int(ends[1]), int(ends[2])
        if thread.member.can_be(a, b):
            return
        process = thread.process
        last = [member for member in (process.last.get(thread.device), *reversed(process.members.values())) if member]
        found = next((member for member in last if member.can_be(a, b)), None)
        if found is not None:
            thread.member = found
            thread.pairs = found.others if found.complete else found.rings

    def _init(self, thread: Thread, body: bytes, number: int) -> None:
        match = _RANK.search(body)
        if match is None:
            return
        rank, size, pointer = int(match[2]), int(match[3]), match[1]
        process, records = thread.process, self.records
        known = process.members.get(pointer)
        fits = known if known is not None and not known.complete and known.rank in (None, rank) else None
        complete = b"Init COMPLETE" in body
        if b"Init START" in body:
            member = records.member(process, thread.device)
            member.started = process.announces = True
        elif complete or b" nNodes " in body:
            member = fits or thread.member
            if member.complete or member.rank not in (None, rank):
                member = records.member(process, thread.device)
        else:
            return
        if thread.member is not member:
            thread.member, thread.pairs = member, member.rings
        process.members.pop(pointer, None)
        process.members[pointer] = member
        if len(process.members) > _MAX_OPEN:
            del process.members[next(iter(process.members))]
        member.rank, member.size = rank, size
        _identify(member, dict(_FIELD.findall(body)), process.members)
        if complete:
            member.complete = True
            process.last[thread.device] = member
            thread.pairs = member.others
            if not process.announces:
                # Before 2.18.3 the next communicator of this thread begins unannounced.
                thread.member = records.member(process, thread.device)
                thread.pairs = thread.member.rings

    def _connected(self, thread: Thread, body: bytes, number: int) -> None:
        if body.startswith(b"Connected all rings"):
            thread.pairs = thread.member.others

    def _trees(self, thread: Thread, body: bytes, number: int) -> None:
        if body.startswith(b"Trees [") and not thread.member.trees:
            if self.records.tree_bytes + len(body) > MAX_TREE_BYTES or len(body) > MAX_PER_MEMBER:
                self.records.dropped["tree lines"] += 1
                return
            self.records.tree_bytes += len(body)
            thread.member.trees = body[6:]

    def _nccl(self, thread: Thread, body: bytes, number: int) -> None:
        if body.startswith(b"NCCL version "):
            self.version(thread, body, number)
        elif match := _SETTING.match(body):
            self._setting(thread, match[1], match[2], number)

    def version(self, thread: Thread, body: bytes, number: int) -> None:
        """`NCCL version 2.28.9+cuda13.0`."""
        if match := _VERSION.search(body):
            version = text(match[1])
            if thread.process.host is not None:
                thread.process.version = version
            cuda = text(match[2]).rstrip(".") if match[2] else ""
            self._count(self.records.versions, version, cuda, thread, number)

    def _setting(self, thread: Thread, name: bytes, value: bytes, number: int) -> None:
        shown = text(_REPEATED.sub(b"", value))
        if _WHOLE.fullmatch(shown):
            # Integers are printed with a full stop, texts mostly without.
            shown = shown[:-1]
        variable = text(name)
        self._count(self.records.settings, variable, shown, thread, number)
        if len(thread.process.settings) < _MAX_SETTINGS:
            thread.process.settings[variable] = shown

    def _config(self, thread: Thread, body: bytes, number: int) -> None:
        match = _RESET.search(body)
        if match and b" reset to " in body:
            self._setting(thread, match[1], match[2], number)

    def _plugin(self, thread: Thread, body: bytes, number: int) -> None:
        if body.startswith(b"Plugin name set by env to "):
            self._setting(thread, b"NCCL_NET_PLUGIN", body[26:], number)
        elif match := _USING.search(body.rstrip()):
            kind = {b"TUNER": "tuner plugin", b"PROFILER": "profiler plugin", b"ENV": "env plugin"}[match[1]]
            self._count(self.records.plugins, kind, text(match[2]), thread, number)

    def _using(self, thread: Thread, body: bytes, number: int) -> None:
        for start in (b"Using network ", b"Using internal Network "):
            if body.startswith(start):
                name = text(body[len(start) :])[:80]
                self._count(self.records.plugins, "network", name, thread, number)
                if len(thread.process.networks) < 16:
                    thread.process.networks.add(name)

    def _bootstrap(self, thread: Thread, body: bytes, number: int) -> None:
        match = _INTERFACE.search(body)
        if b"Using" not in body[:18]:
            return
        if own := _OWN_NETWORK.search(body):
            # Since 2.24 a network plugin can carry the bootstrap: NCCL prints device and port.
            self._count(self.records.bootstrap, text(own[1]), "", thread, number, MAX_ENTRIES)
        elif match:
            self._count(self.records.bootstrap, text(match[1]), text(match[2]), thread, number, MAX_ENTRIES)

    def _net(self, thread: Thread, body: bytes, number: int) -> None:
        records = self.records
        if b"GPU Direct RDMA" in body:
            self._gdr(thread, body, number)
        elif body.startswith((b"NET/IB : Using", b"NET/IB: Using")):
            records.ib_asked = True
            for index, device in _DEVICE.findall(body.partition(b"OOB")[0]):
                self._count(records.ib_devices, text(device), str(int(index)), thread, number)
        elif body.startswith((b"NET/IB : No device", b"NET/IB: No device")):
            records.ib_asked = True
            self._count(records.ib_absent, "NET/IB", "none", thread, number)
        elif body.startswith(b"NET/Socket : Using"):
            for name, where in _INTERFACE.findall(body):
                self._count(records.sockets, text(name), text(where), thread, number, MAX_ENTRIES)
        elif match := _OFI_SETS.match(body):
            self._setting(thread, match[1], match[2], number)
        elif match := _OFI.match(body):
            self._count(records.plugins, "net plugin release", text(match[1]), thread, number)
        elif match := _LOADED.search(body.rstrip()):
            kind = "net plugin" if match[1] == b"net" else "collnet plugin"
            self._count(records.plugins, kind, text(match[2]), thread, number)
        elif thread.paths is not None and b" :" in body:
            thread.paths.add_paths(text(body))

    def _gpu(self, thread: Thread, body: bytes, number: int) -> None:
        if body.startswith(b"GPU Direct RDMA"):
            self._gdr(thread, body, number)

    def _gdr(self, thread: Thread, body: bytes, number: int) -> None:
        if match := _GDR.search(body):
            # Which GPU is told apart only where it matters, because there are many.
            said = _ALLOWED.sub(rb"\1", match[0])
            self._count(self.records.gdr, text(said), "", thread, number, MAX_ENTRIES)

    def _paths(self, thread: Thread, body: bytes, number: int) -> None:
        if thread.paths is not None:
            thread.paths.add_paths(text(body))

    def _system(self, thread: Thread, body: bytes, number: int) -> None:
        if body.startswith(b"=== System"):
            thread.topology, thread.paths = [body], None
        elif thread.topology is not None:
            printed = topology.read(line.decode("ascii", "replace").rstrip() for line in thread.topology)
            host = thread.process.host
            known = self.records.topologies.get(host)
            thread.topology = None
            if known is None and len(self.records.topologies) >= MAX_HOSTS:
                self.records.dropped["trees of hosts"] += 1
            elif known is None or known.gpus < printed.gpus:
                self.records.topologies[host] = thread.paths = printed

    def _tree_line(self, thread: Thread, body: bytes, number: int) -> None:
        if thread.topology is not None and len(thread.topology) < MAX_TOPOLOGY_LINES:
            thread.topology.append(body[:1024])

    def _indented(self, thread: Thread, body: bytes, number: int) -> None:
        if b" |" in body:
            self._tuner(thread, body, number)
        elif thread.topology is not None:
            self._tree_line(thread, body, number)

    def _pattern(self, thread: Thread, body: bytes, number: int) -> None:
        if match := _PATTERN.match(body):
            graph = tuple(text(group) for group in match.groups())
            tally = self.records.tally(self.records.graphs, graph)
            self.records.say(tally, thread.process, self.place(number))

    def _tuner(self, thread: Thread, body: bytes, number: int) -> None:
        nccl_log_tuner.add(thread, text(body))

    def collective(self, thread: Thread, body: bytes, number: int) -> None:
        """What the tuner chose, or a row of its table that begins at the edge."""
        choices = self.records.choices
        if b" Bytes -> " in body:
            if body in choices or len(choices) < MAX_KINDS:
                choices[body[:200]] += 1
            else:
                self.records.dropped["choices of the tuner"] += 1
        elif b" |" in body:
            self._tuner(thread, body, number)

    def _channels(self, thread: Thread, body: bytes, number: int) -> None:
        for count, kind in _CHANNELS.findall(body):
            if kind == b"coll":
                thread.member.channels = int(count)
            else:
                thread.member.nvls_channels = int(count)

    def _verbs(self, thread: Thread, body: bytes, number: int) -> None:
        """NCCL tries libibverbs.so first, and libibverbs.so.1 last."""
        if body.startswith((b"Failed to open libibverbs", b"Count not open libibverbs.so.1")):
            self.records.ib_asked = True
            self._count(self.records.ib_absent, "NET/IB", NO_VERBS, thread, number)

    def _nvls(self, thread: Thread, body: bytes, number: int) -> None:
        if b"multicast support is" in body:
            thread.member.nvls = b"not available" not in body

    def _collnet(self, thread: Thread, body: bytes, number: int) -> None:
        if b" via COLLNET/" in body and len(thread.member.collnet) < 64:
            thread.member.collnet.add(text(body.partition(b" via ")[2])[:80])

    def _driver(self, thread: Thread, body: bytes, number: int) -> None:
        if self.records.cuda_driver is None and (match := _DRIVER.match(body)):
            # 13000 is 13.0: a thousand for each major release, ten for each minor one.
            self.records.cuda_driver = f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}"

    def _retry(self, thread: Thread, body: bytes, number: int) -> None:
        if b"retry" in body or b"Connection refused" in body:
            self.warn(thread.process, body, nccl_log_warnings.RETRIES, number)

    def warn(self, process: Process, message: bytes, kind: nccl_log_warnings.Kind, number: int) -> None:
        """Count a warning with those of its wording."""
        records = self.records
        key = (kind.name, nccl_log_warnings.shape(message))
        if key not in records.warnings and len(records.warnings) >= MAX_KINDS:
            # The kind still counts, only the wording is given up.
            key = (kind.name, b"")
            records.warnings.setdefault(key, Tally())
        records.say(records.tally(records.warnings, key), process, self.place(number))
        records.examples.setdefault(key, text(message[:600]))

    def _count(
        self, table: Table, first: str, second: str, thread: Thread, number: int, most: int | None = None
    ) -> None:
        self.records.say(self.records.tally(table, (first, second), most), thread.process, self.place(number))

    def place(self, number: int) -> Place:
        return Place(file=self.file, line=number)


def _identify(member: Member, fields: dict[bytes, bytes], members: dict[bytes, Member]) -> None:
    def whole(name: bytes) -> int | None:
        value = fields.get(name)
        return int(value) if value is not None and value.isdigit() and len(value) < 10 else None

    if (device := whole(b"cudaDev")) is not None:
        member.cuda_device = device
    if (device := whole(b"nvmlDev")) is not None:
        member.nvml_device = device
    if b"busId" in fields:
        member.bus = fields[b"busId"].decode().lower()
    if (nodes := whole(b"nNodes")) is not None:
        member.nodes = nodes
        member.mnnvl = bool(whole(b"MNNVL")) if b"MNNVL" in fields else None
    if b"commId" in fields:
        member.key = ("id", fields[b"commId"].decode())
    elif b"parent" in fields:
        parent = members.get(b"0x" + fields[b"parent"])
        above = parent.key if parent is not None and parent.key is not None else ("?",)
        split = (fields.get(b"splitCount", b"").decode(), fields.get(b"color", b"").decode())
        member.key = ("split", *split, *above)[:12]


HANDLERS: Final[dict[bytes, Handler]] = {
    b"comm": Lines._init,
    b"nccl": Lines._init,
    b"[Ran": Lines._init,
    b"Conn": Lines._connected,
    b"Ring": Lines._ring,
    b"Tree": Lines._trees,
    b"NCCL": Lines._nccl,
    b"Comm": Lines._config,
    b"Plug": Lines._plugin,
    b"TUNE": Lines._plugin,
    b"PROF": Lines._plugin,
    b"ENV/": Lines._plugin,
    b"Using network"[:4]: Lines._using,
    b"Boot": Lines._bootstrap,
    b"NET/": Lines._net,
    b"GPU ": Lines._gpu,
    b"GPU/": Lines._paths,
    b"=== ": Lines._system,
    b"====": Lines._system,
    b"CPU/": Lines._tree_line,
    b"+ PC": Lines._tree_line,
    b"+ NV": Lines._tree_line,
    b"+ SY": Lines._tree_line,
    b"+ C2": Lines._tree_line,
    b"+ NE": Lines._tree_line,
    b"    ": Lines._indented,
    b" Max": Lines._indented,
    b"  Al": Lines._indented,
    b"  Pr": Lines._indented,
    b"Late": Lines._tuner,
    b"Patt": Lines._pattern,
    b"cuda": Lines._driver,
    b"Call": Lines._retry,
    b"sock": Lines._retry,
    b"Fail": Lines._verbs,
    b"Coun": Lines._verbs,
    b"NVLS": Lines._nvls,
    b"Coll": Lines._collnet,
    **{f"{count} coll channels".encode()[:4]: Lines._channels for count in range(129)},
}
"""The first four letters of a message → what it says. Everything else is passed over."""
