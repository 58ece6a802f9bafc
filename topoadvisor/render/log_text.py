"""The screen that `topoadvisor log` prints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from topoadvisor import cpu_lists
from topoadvisor.ingest.nccl_log_summary import Communicator, HostTopology, Interface, Plugin, Ring
from topoadvisor.joblog.document import Log
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.numbers import size_text
from topoadvisor.render.page import COLORS, MARKS, Page

_MOST_COMMUNICATORS = 4
_MOST_RINGS = 4
_MOST_RANKS = 16
_MOST_FINDINGS = 20
_MOST_CHOICES = 12


def render(log: Log, *, width: int = 100, color: bool = False) -> str:
    """The whole screen as text, ending in a newline."""
    page = Page(width, color)
    _head(log, page)
    _findings(log, page)
    _settings(log, page)
    _network(log, page)
    for communicator in log.communicators[:_MOST_COMMUNICATORS]:
        _communicator(communicator, page)
    if log.communicators_seen > _MOST_COMMUNICATORS:
        page.blank()
        page.lines.append(f"and {log.communicators_seen - _MOST_COMMUNICATORS} more communicators (--format json)")
    _topology(log, page)
    _choices(log, page)
    if log.unknown:
        page.heading(f"Not known ({len(log.unknown)})")
        for undecided in log.unknown:
            page.paragraph(f"{undecided.question}: {undecided.reason} [{undecided.id}]", first="  ? ", rest="    ")
            if undecided.ask:
                page.paragraph(undecided.ask, first="    → ", rest="      ", code="2")
    for note in log.notes:
        page.paragraph(note, rest="  ", code="2")
    return "\n".join(page.lines) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith(("s", "ch")) else "s")


def _some(items: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def _head(log: Log, page: Page) -> None:
    versions = [version.version + (f" (CUDA {version.cuda})" if version.cuda else "") for version in log.versions]
    title = f"NCCL {' and '.join(versions)}" if versions else "NCCL, version not in the log"
    parts = [title, _count(log.processes, "process"), _count(len(log.hosts), "host")]
    parts.append(_count(log.communicators_seen, "communicator"))
    page.paragraph(", ".join(parts), rest="  ", code="1")
    size = f"{log.size_bytes / 1e6:.1f} MB" if log.size_bytes >= 100_000 else f"{log.size_bytes} bytes"
    read = f"Read: {_count(len(log.files), 'file')}, {log.lines} lines, {log.nccl_lines} of NCCL, {size}"
    page.paragraph(read + (f"; topology from {log.topology_source}" if log.topology_source else ""), code="2")
    if not log.info:
        page.paragraph("There is nothing of level INFO in it, so that most of what follows is missing.", code="33")


def _findings(log: Log, page: Page) -> None:
    if log.findings:
        page.heading(f"Verdict ({len(log.findings)})")
    elif log.unread:
        page.heading(f"Verdict: nothing wrong in what could be read, but {log.unread} messages or lines could not")
    else:
        page.heading("Verdict: nothing wrong that the log shows")
    for finding in log.findings[:_MOST_FINDINGS]:
        mark = page.paint(MARKS[finding.severity], COLORS[finding.severity])
        page.paragraph(finding.message, first=f"  {mark} {finding.id} ", rest="           ")
        if finding.evidence:
            page.paragraph("; ".join(finding.evidence), first="      ", rest="      ", code="2")
        for advice in finding.advice:
            page.paragraph(advice, first="      → ", rest="        ")
    if len(log.findings) > _MOST_FINDINGS:
        page.lines.append(f"    and {len(log.findings) - _MOST_FINDINGS} more (--format json)")


def _settings(log: Log, page: Page) -> None:
    none = "the log shows none" if log.info else "not in the log"
    page.heading("Settings in force" if log.settings else f"Settings in force: {none}")
    for setting in log.settings:
        where = setting.origin or "environment or a conf file: the log does not tell them apart"
        who = "" if setting.processes >= log.processes else f", {_count(setting.processes, 'process')}"
        page.paragraph(f"{setting.name}={setting.value}   ({where}{who})", first="  ", rest="      ")


def _network(log: Log, page: Page) -> None:
    page.heading("Network")
    page.paragraph(_line("bootstrap", log.bootstrap), first="  ", rest="    ")
    ib = _line("RDMA devices", log.ib_devices)
    if not log.ib_devices:
        found = "NCCL could not open libibverbs" if log.verbs_missing_on else "NCCL found none"
        ib = f"RDMA devices: {found if log.ib_asked else 'not in the log'}"
    elif log.ib_absent_on:
        ib += f"; none on {_some(log.ib_absent_on)}"
    page.paragraph(ib, first="  ", rest="    ")
    if log.socket_interfaces:
        page.paragraph(_line("socket interfaces", log.socket_interfaces), first="  ", rest="    ")
    by_kind: dict[str, list[Plugin]] = defaultdict(list)
    for plugin in log.plugins:
        by_kind[plugin.kind].append(plugin)
    for kind, plugins in by_kind.items():
        page.paragraph(f"{kind}: {_some([each.name for each in plugins])}", first="  ", rest="    ")
    for enabled in (True, False):
        said = [each for each in log.gdr if each.enabled is enabled]
        if said:
            names = sorted({f"GPU {each.gpu} with {each.hca}" if each.gpu else each.hca for each in said})
            word = "allowed" if enabled else "off"
            page.paragraph(f"GPUDirect RDMA {word}: {_some(names, 8)}", first="  ", rest="    ")


def _line(title: str, items: Sequence[Interface]) -> str:
    if not items:
        return f"{title}: not in the log"
    return f"{title}: " + _some(
        list(dict.fromkeys(f"{each.name} ({each.address})" if each.address else each.name for each in items)), 8
    )


def _communicator(communicator: Communicator, page: Page) -> None:
    size = f"at least {communicator.size}" if communicator.at_least else str(communicator.size)
    about = [f"{size} ranks"]
    if communicator.nodes is not None:
        about.append(_count(communicator.nodes, "node"))
    if communicator.channels is not None:
        about.append(_count(communicator.channels, "channel"))
    if communicator.nvls is not None:
        about.append(f"NVLS {'available' if communicator.nvls else 'not available'}")
    if communicator.mnnvl:
        about.append("multi-node NVLink")
    page.heading(f"Communicator {communicator.id}: {', '.join(about)}")
    if len(communicator.ranks) < communicator.size:
        page.paragraph(f"{len(communicator.ranks)} of {size} ranks are named in the log", first="  ")
    if communicator.started or communicator.complete:
        page.paragraph(f"initialised: {communicator.complete} of {len(communicator.ranks)}", first="  ")
    _transports(communicator, page)
    _rings(communicator.rings, page)
    for tree in communicator.trees[:_MOST_RINGS]:
        if all(parent is None for parent in tree.parents[:_MOST_RANKS]):
            continue
        shown = " ".join("?" if parent is None else str(parent) for parent in tree.parents[:_MOST_RANKS])
        more = " …" if len(tree.parents) > _MOST_RANKS else ""
        text = f"tree, parents of ranks 0, 1, …: {shown}{more}   {_channels(tree.channels)}"
        page.paragraph(text, first="  ", rest="      ")
    if len(communicator.trees) > _MOST_RINGS:
        page.lines.append(f"  and {len(communicator.trees) - _MOST_RINGS} more trees (--format json)")
    if communicator.collnet:
        page.paragraph(f"in-network reduction: {_some(communicator.collnet)}", first="  ", rest="    ")
    _tuner(communicator, page)


def _transports(communicator: Communicator, page: Page) -> None:
    grouped: dict[tuple[str, str | None, bool], list[str]] = defaultdict(list)
    for each in communicator.connections:
        grouped[each.via, each.gdr, each.proxy].append(f"{each.a}>{each.b}")
    for (via, gdr, proxy), pairs in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0][0])):
        about = {
            "on": " with GPUDirect RDMA",
            "off": " without GPUDirect RDMA",
            "mixed": " with GPUDirect RDMA at one end",
        }
        rdma = "" if via == "NET/Socket" else about.get(gdr or "", "")
        text = f"{via}{rdma}{' through another GPU (PXN)' if proxy else ''}"
        page.paragraph(f"{text}: {_count(len(pairs), 'pair')} ({_some(pairs, 8)})", first="  ", rest="      ")


def _rings(rings: Sequence[Ring], page: Page) -> None:
    for ring in rings[:_MOST_RINGS]:
        shown = " ".join(map(str, ring.order[:_MOST_RANKS])) + (" …" if len(ring.order) > _MOST_RANKS else "")
        cut = "" if ring.complete else " (cut in the log)"
        origin = "" if ring.origin == "printed" else f" (from the {ring.origin})"
        page.paragraph(f"ring {shown}{cut}{origin}   {_channels(ring.channels)}", first="  ", rest="      ")
    if len(rings) > _MOST_RINGS:
        page.lines.append(f"  and {len(rings) - _MOST_RINGS} more rings (--format json)")


def _channels(channels: Iterable[int]) -> str:
    """`channels 0-5, 12-17`."""
    return "channels " + cpu_lists.spell(channels).replace(",", ", ")


def _tuner(communicator: Communicator, page: Page) -> None:
    """For each collective the algorithms and protocols that are allowed: latency in µs, bandwidth in GB/s."""
    allowed: dict[str, list[str]] = defaultdict(list)
    for cell in communicator.tuner:
        if cell.gbps:
            allowed[cell.collective].append(f"{cell.algorithm}/{cell.protocol} {cell.latency_us:g}/{cell.gbps:g}")
    if allowed:
        page.paragraph("tuner's table, allowed entries (µs/GB/s):", first="  ")
    for collective, cells in allowed.items():
        page.paragraph(f"{collective}: {', '.join(cells)}", first="    ", rest="        ", code="2")


def _topology(log: Log, page: Page) -> None:
    if not (log.topologies or log.graphs or log.topology_xml or log.graph_xml):
        return
    page.heading("Topology as NCCL saw it")
    if log.told_topology:
        page.paragraph(
            f"it begins with {log.told_topology}, and need not be that of the machine", first="  ", rest="    "
        )
    for topology in log.topologies[:1]:
        kinds = Counter(node.kind for node in topology.nodes)
        if any(wire.kind == "NVL" and "NVS/" in wire.a + wire.b for wire in topology.wires):
            kinds["NVS"] = max(kinds["NVS"], 1)
        words = {"CPU": "NUMA node", "PCI": "PCI switch", "GPU": "GPU", "NET": "network device", "NVS": "NVSwitch"}
        parts = [_count(kinds[kind], word) for kind, word in words.items() if kinds[kind]]
        paths = Counter(path.type for path in topology.paths if path.a.startswith("GPU/") and path.b.startswith("GPU/"))
        between = ", ".join(f"{kind} {count // 2}" for kind, count in sorted(paths.items()))
        text = f"{topology.host or 'host not named'}: {', '.join(parts)}" + (
            f"; GPU pairs: {between}" if between else ""
        )
        page.paragraph(text, first="  ", rest="    ")
        for line in _gpus(topology):
            page.paragraph(line, first="    ", rest="        ", code="2")
    if len(log.topologies) > 1:
        page.lines.append(f"  and {len(log.topologies) - 1} more hosts (--format json)")
    if log.graph_xml:
        page.paragraph("the log holds a graph XML (--format json)", first="  ")
    if log.topology_xml:
        page.paragraph("the log holds a topology XML: `topoadvisor scan` reads it from there", first="  ")
    for graph in log.graphs:
        text = f"{graph.pattern}: {_count(graph.channels, 'channel')} of {graph.intra_gbps:g} GB/s over {graph.intra}"
        page.paragraph(text + f", {graph.inter_gbps:g} GB/s to the network over {graph.inter}", first="  ", rest="    ")


def _gpus(topology: HostTopology) -> Iterator[str]:
    """One line for each GPU: what it hangs on, its other links, and its nearest network devices."""
    nodes = {f"{node.kind}/{node.id}": node for node in topology.nodes}
    gpus = [name for name, node in nodes.items() if node.kind == "GPU"]
    for name in gpus[:_MOST_RANKS]:
        node = nodes[name]
        above: list[str] = []
        at = node.parent
        while at is not None and at not in above and len(above) < 8:
            above.append(at)
            at = nodes[at].parent if at in nodes else None
        parts = [" → ".join(above)] if above else []
        ends = [(wire, wire.b if wire.a == name else wire.a) for wire in topology.wires if name in (wire.a, wire.b)]
        parts += [f"{wire.kind} {wire.gbps:g} GB/s to {other}" for wire, other in ends]
        nets = [(path.type, path.b) for path in topology.paths if path.a == name and path.b.startswith("NET/")]
        known = [(NcclPath[kind], net) for kind, net in nets if kind in NcclPath.__members__]
        if known:
            nearest = min(path for path, _ in known)
            parts.append(f"{_some([net for path, net in known if path == nearest])} over {nearest.name}")
        rank = "" if node.rank is None else f", rank {node.rank}"
        yield f"{name} ({node.address or 'no address'}{rank}): {'; '.join(parts)}"
    if len(gpus) > _MOST_RANKS:
        yield f"and {len(gpus) - _MOST_RANKS} more GPUs (--format json)"


def _choices(log: Log, page: Page) -> None:
    if log.choices:
        page.heading("Algorithm and protocol by size")
        for choice in log.choices[:_MOST_CHOICES]:
            size = size_text(choice.min_bytes)
            if choice.max_bytes != choice.min_bytes:
                size += f" to {size_text(choice.max_bytes)}"
            channels = f", {_count(choice.channels, 'channel')}" if choice.channels is not None else ""
            text = f"{choice.collective} {size}: {choice.algorithm} {choice.protocol}{channels}"
            page.paragraph(f"{text}   ({_count(choice.count, 'time')})", first="  ", rest="      ")
        if len(log.choices) > _MOST_CHOICES:
            page.lines.append(f"  and {len(log.choices) - _MOST_CHOICES} more (--format json)")
    if log.operations:
        text = ", ".join(f"{name} {count}" for name, count in log.operations.items())
        page.paragraph(f"Calls: {text}", rest="  ", code="2")
