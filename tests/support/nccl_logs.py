"""Logs of NCCL for tests, written line by line after the formats in NCCL's source of each release."""

from __future__ import annotations

from collections.abc import Iterable


def who(rank: int, per_host: int = 8, tid: int | None = None) -> str:
    host, local = divmod(rank, per_host)
    pid = 7000 + local
    return f"node{host + 1}:{pid}:{tid or pid + 100} [{local}] NCCL "


def info(rank: int, message: str, per_host: int = 8, tid: int | None = None) -> str:
    return f"{who(rank, per_host, tid)}INFO {message}"


def bus(local: int) -> str:
    return f"{0x1B000 + local * 0x20000:x}"


def modern(
    size: int = 8,
    per_host: int = 8,
    channels: int = 2,
    *,
    version: str = "2.28.9",
    inside: str = "P2P/CUMEM",
    outside: str = "NET/IB/0/GDRDMA",
    network: str = "IB",
    ib: str | None = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB",
    bootstrap: str = "eth0:10.0.0.{host}<0>",
    settings: Iterable[str] = (),
    commid: str = "d8289d3e6e217d26",
    complete: bool = True,
    extra: Iterable[tuple[int, str]] = (),
) -> list[str]:
    """A job of one communicator, as NCCL 2.21 to 2.30 prints it."""
    lines = []

    def add(rank: int, message: str) -> None:
        lines.append(info(rank, message, per_host))

    for rank in range(size):
        local = rank % per_host
        add(rank, "Bootstrap: Using " + bootstrap.format(host=rank // per_host + 1))
        add(rank, "cudaDriverVersion 13000")
        add(rank, f"NCCL version {version}+cuda13.0")
        add(rank, f"NET/IB : Using {ib} [RO]; OOB eth0:10.0.0.1<0>" if ib else "NET/IB : No device found.")
        add(rank, f"Using network {network}")
        for setting in settings:
            add(rank, setting)
        where = f"comm 0x55d9{rank:08x} rank {rank} nranks {size} cudaDev {local} nvmlDev {local} busId {bus(local)}"
        add(rank, f"ncclCommInitRankConfig {where} commId 0x{commid} - Init START")
    nodes = -(-size // per_host)
    for rank in range(size):
        local = rank % per_host
        place = f"nNodes {nodes} localRanks {per_host} localRank {local} MNNVL 0"
        add(rank, f"comm 0x55d9{rank:08x} rank {rank} nRanks {size} {place}")
        trees = " ".join(
            f"[{c}] {rank + 1 if rank + 1 < size else -1}/-1/-1->{rank}->{rank - 1}" for c in range(channels)
        )
        add(rank, "Trees " + trees)
        add(rank, "P2P Chunksize set to 524288")
    for channel in range(channels):
        add(0, f"Channel {channel:02d}/{channels:02d} : " + " ".join(map(str, range(size))))
    for rank, message in extra:
        add(rank, message)
    for rank in range(size):
        for channel in range(channels):
            after, before = (rank + 1) % size, (rank - 1) % size
            near = after // per_host == rank // per_host
            ends = f"{rank}[{rank % per_host}] -> {after}[{after % per_host}]"
            add(rank, f"Channel {channel:02d}/0 : {ends} " + (f"via {inside}" if near else f"[send] via {outside}"))
            if before // per_host != rank // per_host:
                ends = f"{before}[{before % per_host}] -> {rank}[{rank % per_host}]"
                add(rank, f"Channel {channel:02d}/0 : {ends} [receive] via {outside}")
        add(rank, "Connected all rings, use ring PXN 0 GDR 1")
        add(rank, "Connected all trees")
        add(
            rank,
            f"{channels} coll channels, {channels} collnet channels, 0 nvls channels, 32 p2p channels",
        )
    if complete:
        for rank in range(size):
            local = rank % per_host
            where = (
                f"comm 0x55d9{rank:08x} rank {rank} nranks {size} cudaDev {local} nvmlDev {local} busId {bus(local)}"
            )
            add(rank, f"ncclCommInitRankConfig {where} commId 0x{commid} - Init COMPLETE")
    return lines


def old(size: int = 4, *, inside: str = "P2P/IPC") -> list[str]:
    """NCCL 2.7: no announcement, no identity, bus numbers in brackets, the version once for the job."""
    lines = []
    for rank in range(size):
        lines.append(info(rank, "Bootstrap : Using [0]ib0:10.1.0.1<0>"))
        lines.append(info(rank, "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"))
        lines.append(info(rank, "NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.1.0.1<0>"))
        lines.append(info(rank, "Using network IB"))
    lines.append("NCCL version 2.7.8+cuda11.0")
    for channel in range(2):
        ring = "".join(f" {rank:3d}" for rank in range(size))
        lines.append(info(0, f"Channel {channel:02d}/02 : {ring}"))
    for rank in range(size):
        up = "|".join(
            (f"{rank + 1 if rank + 1 < size else -1}/-1/-1->{rank}->{rank - 1}", f"{rank - 1}->{rank}->-1/-1/-1")
        )
        lines.append(info(rank, f"Trees [0] {up} [1] {up}"))
        lines.append(info(rank, f"Setting affinity for GPU {rank} to ff"))
        for channel in range(2):
            after = (rank + 1) % size
            lines.append(
                info(rank, f"Channel {channel:02d} : {rank}[{bus(rank)}] -> {after}[{bus(after)}] via {inside}")
            )
    for rank in range(size):
        lines.append(info(rank, "2 coll channels, 2 p2p channels, 2 p2p channels per peer"))
        where = f"comm 0x7f{rank:010x} rank {rank} nranks {size} cudaDev {rank} busId {bus(rank)}"
        lines.append(info(rank, f"{where} - Init COMPLETE"))
    return lines


def graph(rank: int, *, far: str = "PHB", nvlink: float | None = None) -> list[tuple[int, str]]:
    """Tree and paths of a host of four GPUs, two on each of two CPUs; GPU pairs over NVLink where a speed is given."""
    message = ["=== System : maxBw 24.0 totalBw 24.0 ==="]
    for cpu in (0, 1):
        message.append(f"CPU/0-{cpu} (1/1/3)")
        message.append(f"+ PCI[48.0] - PCI/0-{0x10000 + cpu * 0x80000:x} (1000c0101000a096)")
        for gpu in (2 * cpu, 2 * cpu + 1):
            message.append(f"              + PCI[24.0] - GPU/0-{bus(gpu)} ({gpu})")
            if nvlink is not None:
                message.append(f"                            + NVL[{nvlink:.1f}] - NVS/0-0")
        message.append(f"              + PCI[24.0] - NIC/0-{0x14000 + cpu * 0x80000:x}")
        message.append(f"                            + NET[25.0] - NET/0-{cpu} (0/0/1/25.000000)")
        message.append(f"+ SYS[10.0] - CPU/0-{1 - cpu}")
    message.append("==========================================")
    for a in range(4):
        cells = []
        for b in range(4):
            near = a // 2 == b // 2
            path = "LOC" if a == b else "NVL" if nvlink is not None else "PIX" if near else far
            cells.append(f"GPU/0-{bus(b)} ({abs(a - b) * 2}/24.0/{path})")
        message.append(f"GPU/0-{bus(a)} :" + " ".join(cells) + " CPU/0-0 (2/24.0/PHB) ")
    return [(rank, line) for line in message]


def data(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
