"""Machines that somebody might have built: uneven sockets, switches below switches, halved slots, odd bridges."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Snapshot

_CPUS = (("GenuineIntel", 6, 143), ("GenuineIntel", 6, 85), ("AuthenticAMD", 25, 1), ("AuthenticAMD", 23, 49))
_SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
_SIZES = (3, 4, 5, 6, 7, 8, 8, 10, 12, 16)


@dataclass
class _Board:
    pick: random.Random
    speed: str
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 256)))
    nics: int = 0

    def address(self) -> str:
        return f"0000:{next(self.numbers):02x}:00.0"

    def device(self, address: str, kind: str, width: int, inside: str) -> str:
        return f'<pci busid="{address}" class="{kind}" link_speed="{self.speed}" link_width="{width}">{inside}</pci>'

    def nic(self) -> str:
        if self.pick.random() < 0.6:
            return ""
        self.nics += 1
        speed = self.pick.choice([100_000, 200_000, 400_000])
        net = (
            f'<nic><net name="mlx5_{self.nics}" dev="{self.nics - 1}" speed="{speed}" port="1" latency="0.0" '
            f'guid="0x{self.nics:x}" maxconn="131072" gdr="1"/></nic>'
        )
        return self.device(self.address(), "0x020000", 16, net)


def machine(seed: int, gpus: int | None = None) -> Snapshot:
    """A machine of up to 16 GPUs, the same for the same seed, as a topology file of NCCL would show it."""
    pick = random.Random(seed)
    n = gpus or pick.choice(_SIZES)
    vendor, family, model = pick.choice(_CPUS)
    board = _Board(pick, _SPEEDS[pick.choice([3, 4, 5])])
    cpus = pick.choice([1, 2, 2, 3, 4])
    capabilities = pick.choice([[70], [80], [86], [89], [90], [86, 89], [80, 90]])
    uneven = pick.random() < 0.5
    homes = sorted(pick.randrange(cpus) if uneven else index % cpus for index in range(n))
    address = [board.address() for _ in range(n)]
    nvlinks = _nvlinks(pick, n) if 89 not in capabilities else {}

    def gpu(index: int) -> str:
        links = "".join(
            f'<nvlink target="{address[b if index == a else a]}" count="{count}" tclass="0x030200"/>'
            for (a, b), count in nvlinks.items()
            if index in (a, b)
        )
        sm = capabilities[index % len(capabilities)]
        inside = f'<gpu dev="{index}" sm="{sm}" rank="{index}" gdr="1">{links}</gpu>'
        return board.device(address[index], "0x030200", 8 if pick.random() < 0.15 else 16, inside)

    def below(group: Sequence[int]) -> str:
        if len(group) == 1:
            return gpu(group[0]) + board.nic()
        inside = "".join(map(gpu, group)) + board.nic()
        if len(group) > 2 and pick.random() < 0.5:
            halves = (group[at : at + 2] for at in range(0, len(group), 2))
            inside = "".join(board.device(board.address(), "0x060400", 16, "".join(map(gpu, half))) for half in halves)
        return board.device(board.address(), "0x060400", pick.choice([16, 16, 16, 8]), inside)

    text = ['<system version="1">']
    for cpu in range(cpus):
        mine = [index for index, home in enumerate(homes) if home == cpu]
        text.append(
            f'<cpu numaid="{cpu}" arch="x86_64" vendor="{vendor}" familyid="{family}" modelid="{model}" '
            f'affinity="{0xFF << 8 * cpu:x}">'
        )
        while mine:
            size = pick.choice([1, 2, 2, 4, 4])
            text.append(below(mine[:size]))
            mine = mine[size:]
        text.append("</cpu>")
    text.append("</system>")
    # Over NVLink the driver grants it: where it does not, NCCL stops.
    granted = "OK" if nvlinks else pick.choice(["OK", "OK", "OK", "NS"])
    facts = ["nccl.version=2.28.9", f"pair.p2p.read={granted}", f"pair.p2p.write={granted}"]
    read = detect.from_bytes("".join(text).encode(), file=f"machine-{seed}.xml")
    return assume.apply(read, assume.gather(facts, None))


def _nvlinks(pick: random.Random, n: int) -> dict[tuple[int, int], int]:
    """Links by pair: none, bridges between two GPUs each, or a mesh with links missing."""
    kind = pick.choice(["none", "none", "bridges", "bridges", "mesh"])
    found = {}
    if kind == "bridges":
        left = list(range(n))
        while len(left) > 1 and pick.random() < 0.85:
            a = left.pop(0)
            b = left.pop(0 if pick.random() < 0.7 else pick.randrange(len(left)))
            found[min(a, b), max(a, b)] = pick.choice([2, 4])
    if kind == "mesh":
        for a in range(n):
            for b in range(a + 1, n):
                if pick.random() < 0.7:
                    found[a, b] = pick.choice([1, 2, 2, 4])
    return found
