"""Speed and memory of reading a log of NCCL: a job of 512 ranks with many communicators, written here and thrown away.

Prints figures and judges nothing. `python benchmarks/nccl_log.py [MEGABYTES] [--keep FILE]`.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

RANKS, PER_HOST, CHANNELS = 512, 8, 16
PROGRAM = """
import resource, sys, time
from topoadvisor.ingest import nccl_log
start = time.process_time()
with open(sys.argv[1], "rb") as stream:
    found = nccl_log.read([("log", stream)])
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{found.size_bytes / 1e6:.0f} MB, {found.lines} lines, {len(found.hosts)} hosts, "
      f"{found.communicators_seen} communicators, largest {found.communicators[0].size} ranks")
print(f"{seconds:.2f} s of CPU, {found.size_bytes / 1e6 / seconds:.0f} MB/s, peak {peak:.0f} MiB")
print("; ".join(found.notes) or "nothing left out")
"""


def _rank_lines(rank: int, communicator: int) -> Iterator[str]:
    """What one rank prints for one communicator of the whole job."""
    host, local = divmod(rank, PER_HOST)
    who = f"node{host:03d}:{4000 + local}:{5000 + local} [{local}] NCCL INFO "
    where = f"comm 0x{0x55D900000000 + communicator * 4096 + rank:x} rank {rank} nranks {RANKS} cudaDev {local}"
    where += f" nvmlDev {local} busId {0x1B000 + local * 0x10000:x} commId 0x{0xD8289D3E6E210000 + communicator:x}"
    if not communicator:
        yield who + "Bootstrap: Using ib0:10.0.0.1<0>"
        yield who + "NCCL version 2.27.5+cuda12.9"
        yield who + "NCCL_IB_HCA set by environment to mlx5"
        yield who + "Using network IB"
    yield f"{who}ncclCommInitRankConfig {where} - Init START"
    trees = " ".join(f"[{c}] {rank * 2 % RANKS}/-1/-1->{rank}->{rank // 2}" for c in range(CHANNELS))
    yield f"{who}Trees {trees}"
    if not rank:
        for channel in range(CHANNELS):
            yield f"{who}Channel {channel:02d}/{CHANNELS} :   0   1   2   3   4   5   6   7   8   9  10  11 ..."
    for way, step in (("[receive] ", -1), ("[send] ", 1), ("[send] ", 2)):
        other = (rank + step) % RANKS
        a, b = (other, rank) if step < 0 else (rank, other)
        near = other // PER_HOST == host
        via = "via P2P/CUMEM" if near else f"{way}via NET/IB/{local}/GDRDMA"
        for channel in range(CHANNELS):
            if not near or step > 0:
                yield f"{who}Channel {channel:02d}/0 : {a}[{a % PER_HOST}] -> {b}[{b % PER_HOST}] {via}"
            yield f"{who}proxyProgressAsync opId=0x3592{channel:04x} op.type=3 op.reqBuff=0x7fb56c04da30 done"
        if step == 1:
            yield who + "Connected all rings, use ring PXN 0 GDR 1"
    yield f"{who}ncclCommInitRankConfig {where} - Init COMPLETE"
    for call in range(20):
        yield f"{who}AllReduce: opCount {call:x} sendbuff 0x7f5{rank:09x} recvbuff 0x7f5{rank:09x} count 1048576"
    yield f"{who}AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..{CHANNELS - 1}}}"


def write(path: Path, megabytes: int) -> None:
    """A log of about that size; the lines of the ranks are mixed, those of one rank keep their order."""
    order = random.Random(1)
    communicator = 0
    with path.open("w") as stream:
        while stream.tell() < megabytes * 1_000_000:
            waiting = [_rank_lines(rank, communicator) for rank in range(RANKS)]
            while waiting:
                order.shuffle(waiting)
                alive = []
                for lines in waiting:
                    part = list(islice(lines, 7))
                    if part:
                        stream.write("\n".join(part) + "\n")
                        alive.append(lines)
                waiting = alive
            communicator += 1


def main() -> None:
    """Write the log, read it in a process of its own, print the figures."""
    keep = Path(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 1000
    with tempfile.TemporaryDirectory() as folder:
        path = keep or Path(folder) / "job.log"
        if not path.exists():
            start = time.perf_counter()
            write(path, megabytes)
            print(f"written in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True)
    print(f"peak of the writer {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
