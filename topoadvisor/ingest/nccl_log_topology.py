"""The tree and the paths that NCCL prints with `NCCL_DEBUG_SUBSYS=GRAPH` (`ncclTopoPrint` in `src/graph/topo.cc`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from topoadvisor.ingest.nccl_log_summary import HostTopology, Node, Path, Wire

_ID: Final = r"([A-Z]{2,4})/([0-9A-Fa-f]{1,16}(?:-[0-9A-Fa-f]{1,16})?)"
_TOP: Final = re.compile(rf"{_ID}(?: \(([^)]{{1,80}})\))?\s*")
_BELOW: Final = re.compile(
    rf"(\s{{0,400}})\+ ([A-Z0-9]{{2,4}})\[([0-9]{{1,9}}(?:\.[0-9]{{1,6}})?)\] - {_ID}(?: \(([^)]{{1,80}})\))?"
)
_FROM: Final = re.compile(rf"{_ID} :")
_TO: Final = re.compile(rf"{_ID} \([0-9]{{1,6}}/([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)/([A-Z0-9]{{3}})\)")
_SYSTEM: Final = re.compile(r"=== System : max(?:Bw|Width) ([0-9]{1,9}(?:\.[0-9]{1,6})?)")
MAX_PATHS: Final = 70_000
"""256 GPUs and network devices, each with each."""


@dataclass(slots=True)
class Printed:
    """One host's tree, and its paths as they come."""

    nodes: dict[str, Node] = field(default_factory=dict)
    wires: dict[tuple[str, str], Wire] = field(default_factory=dict)
    paths: dict[tuple[str, str], Path] = field(default_factory=dict)
    max_gbps: float | None = None

    @property
    def gpus(self) -> int:
        return sum(node.kind == "GPU" for node in self.nodes.values())

    def frozen(self, host: str | None) -> HostTopology:
        nodes, wires, paths = (list(table.values()) for table in (self.nodes, self.wires, self.paths))
        return HostTopology(host=host, nodes=nodes, wires=wires, paths=paths, max_gbps=self.max_gbps)  # type: ignore[arg-type]

    def add_paths(self, line: str) -> None:
        """One line `GPU/0-60 :GPU/0-60 (0/5000.0/LOC) …`. NCCL cuts it at 1,023 letters."""
        start = _FROM.match(line)
        if start is None:
            return
        a = _name(start[1], start[2])
        for match in _TO.finditer(line, start.end()):
            b = _name(match[1], match[2])
            if a != b and len(self.paths) < MAX_PATHS:
                self.paths[(a, b)] = Path(a=a, b=b, type=match[4], gbps=float(match[3]))


def address(id: str) -> str | None:
    """PCI address of an id: NCCL writes `0000:1b:00.0` as the number 0x1b000 (`busIdToInt64`); None beyond that."""
    number = int(id.rpartition("-")[2], 16)
    domain = number >> 20
    if domain > 0xFFFFFFFF or number & 0xF > 7 or number == 0:
        return None
    return f"{domain:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF}"


def read(lines: Iterable[str]) -> Printed:
    """The tree between `=== System` and the closing line of equal signs."""
    printed = Printed()
    above: list[tuple[int, str]] = []
    for line in lines:
        if system := _SYSTEM.match(line):
            printed.max_gbps = float(system[1])
        elif match := _BELOW.match(line):
            indent = len(match[1])
            while above and above[-1][0] > indent:
                above.pop()
            if not above:
                continue
            parent, kind, gbps = above[-1][1], match[2], float(match[3])
            name = _name(match[4], match[5])
            if kind == "PCI" or (kind == "NET" and match[4] == "NET"):
                printed.nodes.setdefault(name, _node(match[4], match[5], match[6], parent, gbps))
                # What hangs below a device starts where its own name starts.
                above.append((match.start(4), name))
            elif (name, parent) not in printed.wires:
                printed.wires[(parent, name)] = Wire(a=parent, b=name, kind=kind, gbps=gbps)
        elif match := _TOP.fullmatch(line):
            name = _name(match[1], match[2])
            printed.nodes.setdefault(name, _node(match[1], match[2], match[3], None, None))
            above = [(0, name)]
    return printed


def _name(kind: str, id: str) -> str:
    """Versions disagree about the case of the digits, sometimes within a line."""
    return f"{kind}/{id.lower()}"


def _node(kind: str, id: str, about: str | None, parent: str | None, gbps: float | None) -> Node:
    numbers = (about or "").split("/")
    whole = [int(part) for part in numbers if re.fullmatch(r"[0-9]{1,9}", part)]
    return Node(
        kind=kind,
        id=id.lower(),
        address=address(id) if kind in ("GPU", "PCI") else None,
        rank=whole[0] if kind == "GPU" and len(numbers) == len(whole) == 1 else None,
        parent=parent,
        gbps=gbps,
        cpu=(whole[0], whole[1], whole[2]) if kind == "CPU" and len(whole) == 3 else None,
    )
