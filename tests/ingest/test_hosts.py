"""Texts of several hosts are never blended, and what is no host never splits the text of one."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path

import pytest

from topoadvisor.errors import InputError
from topoadvisor.ingest import detect, host_marks, stream, text
from topoadvisor.ingest.lines import cleaned, without
from topoadvisor.snapshot import Host, Snapshot, encode
from topoadvisor.topology import graph

LINKS = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-31\t0\nGPU1\tNV4\t X \t0-31\t0\n\n"
CLASSES = LINKS.replace("NV4", "PIX")
"""By itself it could be the `topo -mp` of the machine of LINKS."""
P2P = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\n"
STATUS = "".join(
    f"GPU {index}: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-4000-8000-00000000000{index})\n"
    "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"
    for index in range(2)
)
CPUS = "Architecture:        x86_64\nOn-line CPU(s) list: 0-31\nSocket(s):           1\nNUMA node0 CPU(s):   0-31\n"


def marked(mark: str, body: str) -> str:
    return "".join(f"{mark}{line}\n" for line in body.splitlines())


def woven(*bodies: str) -> str:
    lines = zip_longest(*(body.splitlines() for body in bodies))
    return "".join(f"{line}\n" for line in chain.from_iterable(lines) if line is not None)


def ran(*sessions: tuple[str, str]) -> str:
    return "".join(f"{prompt}\n{output}" for prompt, output in sessions)


SEVERAL: dict[str, Callable[[str, str], str]] = {
    "pdsh": lambda first, second: marked("node1: ", first) + marked("node2: ", second),
    "pdsh, line by line": lambda first, second: woven(marked("node1: ", first), marked("node2: ", second)),
    "pdsh, padded and for several at once": lambda first, second: (
        marked("  node[1-3]: ", first) + marked(" node04: ", second)
    ),
    "names without numbers": lambda first, second: marked("server-a: ", first) + marked("server-b: ", second),
    "addresses": lambda first, second: marked("192.0.2.1: ", first) + marked("192.0.2.2: ", second),
    "times in front": lambda first, second: (
        marked("2026-01-01T00:00:00Z node1: ", first) + marked("2026-01-01T00:00:01Z node2: ", second)
    ),
    "ranks of several nodes": lambda first, second: (
        marked("node1: [rank0]: ", first) + marked("node2: [rank1]: ", second)
    ),
    "journal": lambda first, second: (
        marked("Jan  1 00:00:00 node1 job[7]: ", first) + marked("Jan  1 00:00:00 node2 job[7]: ", second)
    ),
    "pods": lambda first, second: marked("[pod/worker-0/main] ", first) + marked("[pod/worker-1/main] ", second),
    "stern": lambda first, second: woven(
        marked("trainer-7d9c-abcde main ", first), marked("trainer-7d9c-fghij main ", second)
    ),
    "docker compose": lambda first, second: woven(marked("worker-1  | ", first), marked("worker-2  | ", second)),
    "ranks that print the same": lambda first, second: woven(marked("0: ", first), marked("1: ", second)),
    "mpirun --tag-output": lambda first, second: woven(
        marked("[1,0]<stdout>:", first), marked("[1,1]<stdout>:", second)
    ),
    "only some lines have a name": lambda first, second: first + marked("node2: ", second),
    "dshbak": lambda first, second: ran(
        ("---------\nnode1\n---------", first), ("---------\nnode2\n---------", second)
    ),
    "ansible": lambda first, second: ran(("node1 | CHANGED | rc=0 >>", first), ("node2 | CHANGED | rc=0 >>", second)),
    "minions of salt that print the same": lambda first, second: ran(
        ("alpha:", marked("    ", first)), ("beta:", marked("    ", second))
    ),
    "parallel-ssh": lambda first, second: ran(
        ("[1] 10:00:00 [SUCCESS] node1", first), ("[2] 10:00:00 [SUCCESS] node2", second)
    ),
    "headings": lambda first, second: ran(("### Node 1\n```", first + "```\n"), ("### Node 2\n```", second + "```\n")),
    "sentences as headings": lambda first, second: ran(("On node1:", first), ("And on node2:", second)),
    "letters as names": lambda first, second: ran(("Node A (master)", first), ("Node B (worker)", second)),
    "counted in words": lambda first, second: ran(("First node:", first), ("Second node:", second)),
    "any names that print the same": lambda first, second: ran(("== before ==", first), ("== after ==", second)),
    "headings with names": lambda first, second: ran(("Host: alpha", first), ("Host: beta", second)),
    "YAML": lambda first, second: ran(("node1: |", marked("  ", first)), ("node2: |", marked("  ", second))),
    "prompts": lambda first, second: ran(
        ("root@node1:~# nvidia-smi topo -m", first), ("root@node2:~# nvidia-smi topo -m", second)
    ),
    "prompts in brackets": lambda first, second: ran(
        ("[me@node1 ~]$ nvidia-smi topo -m", first), ("[me@node2 ~]$ nvidia-smi", second)
    ),
    "prompts without a user": lambda first, second: ran(
        ("node3> nvidia-smi topo -m", first), ("node4> nvidia-smi topo -m", second)
    ),
    "prompts of SUSE": lambda first, second: ran(
        ("node1:~ # nvidia-smi topo -m", first), ("node2:~ # nvidia-smi topo -m", second)
    ),
    "prompts of Kali": lambda first, second: ran(
        ("┌──(root㉿node1)-[~]\n└─# nvidia-smi", first), ("┌──(root㉿node2)-[~]\n└─#", second)
    ),
    "quoted": lambda first, second: marked(
        "> ", ran(("me@node1:~$ nvidia-smi topo -m", first), ("me@node2:~$ nvidia-smi", second))
    ),
    "ssh": lambda first, second: ran(
        ("[me@login ~]$ ssh node1 nvidia-smi topo -m", first), ("[me@login ~]$ ssh node2 nvidia-smi", second)
    ),
    "srun": lambda first, second: ran(
        ("$ srun -w node1 nvidia-smi topo -m", first), ("$ srun -w node2 nvidia-smi topo -m", second)
    ),
    "kubectl": lambda first, second: ran(
        ("$ kubectl exec -it worker-0 -- nvidia-smi topo -m", first),
        ("$ kubectl exec -n ml worker-1 -- nvidia-smi topo -m", second),
    ),
    "containers that print the same": lambda first, second: ran(
        ("root@f51fec68bf55:/# nvidia-smi topo -m", first), ("root@a51fec68bf56:/# nvidia-smi topo -m", second)
    ),
}
ONE = {
    "times": marked("2026-01-01T00:00:00Z ", LINKS) + marked("2026-01-01T00:00:01Z ", STATUS),
    "one rank": marked("[rank0]: ", LINKS) + marked("stdout: ", STATUS),
    "two streams": marked("stdout: ", LINKS) + marked("stderr: ", STATUS),
    "levels of a log": marked("INFO: ", LINKS) + marked("DEBUG: ", STATUS),
    "names of commands": marked("topo-m: ", LINKS) + marked("nvlink: ", STATUS),
    "names of files": marked("topo-m.txt:", LINKS) + marked("nvlink-s.txt:", STATUS),
    "tail": ran(("==> topo.txt <==", LINKS), ("==> nvlink.txt <==", STATUS)),
    "steps": ran(("### Step 1", LINKS), ("### Step 2", STATUS)),
    "versions": ran(("### v1", LINKS), ("### v2", STATUS)),
    "NUMA nodes": ran(("NUMA node 0:", LINKS), ("NUMA node 1:", STATUS)),
    "a container with the name of its host": ran(
        ("root@node1:~# uname -a", "Linux node7 6.8.0-1 #1 SMP\n"), ("root@node1:~# nvidia-smi", LINKS + STATUS)
    ),
    "titles": ran(("Topology:", LINKS), ("Links:", STATUS)),
    "devices": ran(("mlx5_0:", LINKS), ("mlx5_1:", STATUS)),
    "one host under two prompts": ran(("(a) me@node1:/x$ nvidia-smi", LINKS), ("(b) me@node1.example:/y$ x", STATUS)),
    "a shell": ran(("bash-5.1# nvidia-smi topo -m", LINKS), ("sh-4.4# nvidia-smi nvlink -s", STATUS)),
    "a job from the login node": ran(
        ("[me@login ~]$ srun nvidia-smi topo -m", LINKS), ("[me@login ~]$ srun nvidia-smi nvlink -s", STATUS)
    ),
    "one node from the login node": ran(
        ("[me@login ~]$ ssh node1 nvidia-smi topo -m", LINKS), ("[me@login ~]$ ssh node1 nvidia-smi nvlink -s", STATUS)
    ),
    "letters": ran(("On Monday a@one.example wrote:", LINKS), ("On Tuesday b@two.example wrote:", STATUS)),
    "only some output has a name": STATUS + marked("node2: ", LINKS),
}


@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_the_first_host_is_read_and_the_others_are_shown(several: Callable[[str, str], str]) -> None:
    snapshot = text.read(several(LINKS, CLASSES), "paste")
    assert [matrix.other_machine for matrix in snapshot.matrices] == [False, True]
    assert [matrix.cells["GPU0"]["GPU1"] for matrix in snapshot.matrices] == ["NV4", "PIX"]
    pair = graph.build(snapshot).pair("gpu:0", "gpu:1")
    assert (pair.link_class, pair.pcie_class) == ("NV4", None)


@pytest.mark.parametrize(
    "name", [name for name in SEVERAL if "same" not in name and "only" not in name and "--" not in name]
)
def test_links_of_another_host_are_not_those_of_the_matrix(name: str) -> None:
    for body in (SEVERAL[name](LINKS, STATUS), SEVERAL[name](STATUS, LINKS)):
        snapshot = text.read(body, "paste")
        assert all(gpu.nvlinks is None for gpu in snapshot.gpus)
        assert "nvidia-smi nvlink -s" in (snapshot.sources[0].reason or "")


@pytest.mark.parametrize("body", ONE.values(), ids=ONE)
def test_what_names_no_host_splits_nothing(body: str) -> None:
    snapshot = text.read(body, "paste")
    assert [matrix.other_machine for matrix in snapshot.matrices] == [False]
    assert [len(gpu.nvlinks or ()) for gpu in snapshot.gpus] == [2, 2]


def test_all_that_one_host_printed_is_put_together_from_between_that_of_another() -> None:
    body = woven(marked("node1: ", LINKS + P2P + STATUS + CPUS), marked("node2: ", CLASSES + CPUS.replace("31", "63")))
    snapshot = text.read(body, "paste")
    assert [source.name for source in snapshot.sources][2:] == ["nvidia-smi nvlink -s", "lscpu"]
    assert (snapshot.host.cpu and snapshot.host.cpu.online) == "0-31"
    assert [matrix.first_line for matrix in snapshot.matrices] == [1, 2]
    assert snapshot.sources[0].reason == (
        "this text is of 2 hosts, by the names in prompts, above output or in front of its lines: what that of line 1 "
        "printed is read, and not what others did (from line 2 on: nvidia-smi topo -m, lscpu)"
    )


def test_what_two_hosts_printed_together_is_that_of_each() -> None:
    rule = "---------------\n"
    body = (
        f"{rule}node[1-2] (2)\n{rule}{LINKS}{rule}node1\n{rule}{STATUS}{rule}node2\n{rule}{STATUS.replace('25', '50')}"
    )
    snapshot = text.read(body, "paste")
    assert len(snapshot.matrices) == 1
    assert snapshot.gpus[0].nvlinks is not None
    assert snapshot.gpus[0].nvlinks[0].raw_mbps == 25000


def test_that_ranks_are_of_one_host_is_assumed_and_said() -> None:
    snapshot = text.read(marked("0: ", LINKS) + marked("1: ", STATUS), "paste")
    assert snapshot.gpus[0].nvlinks
    assert "are of one host is assumed" in (snapshot.sources[0].reason or "")


@pytest.mark.parametrize(("host", "links"), [("node1", 2), ("node2", 0)])
def test_in_a_text_too_long_to_hold_parts_of_another_host_are_not_used(host: str, links: int) -> None:
    filler = "nothing of interest\n" * (stream.WHOLE // 16)
    body = ran(("root@node1:~# nvidia-smi topo -m", LINKS + filler), (f"root@{host}:~# nvidia-smi nvlink -s", STATUS))
    snapshot = detect.from_bytes(body.encode(), file="long.txt")
    assert [len(gpu.nvlinks or ()) for gpu in snapshot.gpus] == [links, links]
    assert ("not used" in (snapshot.sources[0].reason or "")) is (links == 0)


@pytest.mark.parametrize("mark", ["node{}: ", "[pod/worker-{}/main] ", "worker-7d9c-{} main ", "[1,{}]<stdout>: "])
def test_in_a_text_too_long_to_hold_parts_behind_names_are_read(mark: str) -> None:
    first, second = (mark.format(number) for number in (1, 2))
    filler = marked(first, "step 1 of many\n" * (stream.WHOLE // 16))
    other = CPUS.replace("0-31", "0-63").replace("x86_64", "aarch64")
    alone = detect.from_bytes((marked(first, LINKS) + filler + marked(first, CPUS + STATUS)).encode(), file="long.txt")
    assert alone.host == text.read(CPUS, "a").host
    assert [len(gpu.nvlinks or ()) for gpu in alone.gpus] == [2, 2]
    for late in (marked(first, CPUS) + marked(second, other), woven(marked(second, other), marked(first, CPUS))):
        several = detect.from_bytes((marked(first, LINKS) + filler + late).encode(), file="long.txt")
        # Which rank is on which host nothing says.
        assert several.host == (Host() if "stdout" in mark else alone.host)
        assert "not used, for it may be about another of the hosts here: lscpu" in (several.sources[0].reason or "")


def test_texts_by_host_in_a_json_document() -> None:
    document = '{"node1": {"stdout": "%s"}, "node2": {"stdout": "%s"}}'
    body = document % (
        LINKS.replace("\n", "\\n").replace("\t", "\\t"),
        CLASSES.replace("\n", "\\n").replace("\t", "\\t"),
    )
    snapshot = detect.from_bytes(body.encode(), file="all.json")
    assert [matrix.other_machine for matrix in snapshot.matrices] == [False, True]


def read(folder: Path, *bodies: str) -> Snapshot:
    paths = [folder / f"{number}.txt" for number in range(len(bodies))]
    for path, body in zip(paths, bodies, strict=True):
        path.write_text(body, encoding="utf-8")
    return detect.read([str(path) for path in paths], stdin=io.BytesIO())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ran(("root@node1:~# nvidia-smi topo -m", LINKS)), ran(("root@node2:~# nvidia-smi nvlink -s", STATUS))),
        (marked("node1: ", LINKS), marked("node2.example: ", STATUS)),
        (ran(("root@node1:~# nvidia-smi topo -m", LINKS)), f"Linux node2 6.8.0-1 #1 SMP\n{STATUS}"),
    ],
)
def test_files_of_two_hosts_are_refused(tmp_path: Path, first: str, second: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, first, second)
    files = f"{tmp_path}/1.txt: this is another machine than that of {tmp_path}/0.txt: "
    assert error.value.message == f"{files}the host is node2 here and node1 there"
    assert "topoadvisor diff" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ran(("root@node1:~# nvidia-smi topo -m", LINKS)), STATUS),
        (ran(("root@node1:~# nvidia-smi topo -m", LINKS)), marked("NODE1.example.com: ", STATUS)),
        (ran(("user@host:~$ nvidia-smi topo -m", LINKS)), marked("node1: ", STATUS)),
        (marked("192.0.2.1: ", LINKS), marked("node1: ", STATUS)),
        (ran(("root@f51fec68bf55:/# nvidia-smi topo -m", LINKS)), marked("node1: ", STATUS)),
    ],
)
def test_files_that_name_no_two_hosts_are_put_together(tmp_path: Path, first: str, second: str) -> None:
    assert read(tmp_path, first, second).gpus[1].nvlinks


def test_the_name_of_a_host_is_kept_nowhere_but_in_the_text_itself() -> None:
    snapshot = text.read(marked("node1: ", LINKS) + marked("node2: ", CLASSES), "paste")
    assert "node" in snapshot.raw[0].text
    document = encode(snapshot).decode().replace(snapshot.raw[0].text.encode("unicode_escape").decode(), "")
    assert "node1" not in document
    assert "node2" not in document


def test_a_name_is_cut_off_and_columns_stay_those_of_the_file() -> None:
    line = without(cleaned(0, 1, "node1: \x1b[4mGPU0\x1b[0m\tX"), 7)
    assert line.text == "GPU0\tX"
    assert [line.column(0), line.column(5)] == [12, 21]


def test_lists_of_hosts() -> None:
    assert host_marks.hosts("n[08-10],login1.example") == {"n08", "n09", "n10", "login1"}
    assert host_marks.hosts("r[1-2]n[1-2]") == {"r1n1", "r1n2", "r2n1", "r2n2"}
    assert len(host_marks.hosts("n[1-9999][1-9999][1-9999]")) <= host_marks.MAX_HOSTS
