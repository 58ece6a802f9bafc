from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from topoadvisor import advise, plans
from topoadvisor.errors import InputError
from topoadvisor.ingest import assume, detect, told
from topoadvisor.rules import facts
from topoadvisor.snapshot import Assumption, Cpu, Gpu, Host, NcclLibrary, NumaNode, P2p, PcieLink, Setting, Snapshot
from topoadvisor.topology import graph
from topoadvisor.vocabulary import VOCABULARY, kind_of

THREE = Snapshot(gpus=[Gpu(index=0), Gpu(index=1, name="NVIDIA L4"), Gpu(index=2)])


def applied(*texts: str, to: Snapshot = THREE) -> Snapshot:
    return assume.apply(to, assume.gather(list(texts), None))


@pytest.mark.parametrize(
    ("text", "fact", "value"),
    [
        ("gpu.name=NVIDIA GeForce RTX 4090", "gpu.name", "NVIDIA GeForce RTX 4090"),
        ("cpu.vendor=AuthenticAMD", "cpu.vendor", "AMD"),
        ("cpu.vendor=genuineintel", "cpu.vendor", "Intel"),
        ("cpu.vendor=Acme", "cpu.vendor", "Acme"),
        ("cpu.architecture=arm64", "cpu.architecture", "aarch64"),
        ("driver.flavour=Open", "driver.flavour", "open"),
        ("nccl.version=2.30.3", "nccl.version", "2.30.3"),
        ("nccl.version=2.27", "nccl.version", "2.27.7"),  # a series means its last release
        ("nccl.version=v2.28.9-1", "nccl.version", "2.28.9"),
        ("nccl.version=22809", "nccl.version", "2.28.9"),
        ("driver.version=590", "driver.version", "590"),
        ("cuda.version=13.0", "cuda.version", "13.0"),
        ("env.NCCL_P2P_DISABLE=1", "env.NCCL_P2P_DISABLE", "1"),
        ("env.NCCL_SOCKET_IFNAME==eth0", "env.NCCL_SOCKET_IFNAME", "=eth0"),
        ("env.NCCL_ALGO=", "env.NCCL_ALGO", ""),
        ("env.X=[1,2]", "env.X", "[1,2]"),
        ("gpus.count=8", "gpus.count", 8),
        ("limits.memlock_bytes=-1", "limits.memlock_bytes", -1),
        ("shm.total_bytes=0x4000", "shm.total_bytes", 16384),
        ("gpus.compute_capability_min=9.0", "gpus.compute_capability_min", 9.0),
        ("vm.guest=true", "vm.guest", True),
        ("vm.guest=False", "vm.guest", False),
        ("rdma.gpu_local=[mlx5_0, mlx5_1]", "rdma.gpu_local", ["mlx5_0", "mlx5_1"]),
        ("pair[0,1].p2p.read=ns", "pair[0,1].p2p.read", "NS"),
        ("container.kind=no", "container.kind", "none"),
        (" cpu.model_name = A B ", "cpu.model_name", "A B"),
    ],
)
def test_a_text_becomes_a_typed_fact(text: str, fact: str, value: Any) -> None:
    (found,) = assume.gather([text], None)
    assert (found.fact, found.origin) == (fact, "--assume")
    assert (found.value, type(found.value)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["foo", "=AMD", "", "cpu.vendor", "cpu.vendor=", "cpu vendor=AMD", ".a=1", "a..b=1", "a[=1"]
)
def test_a_malformed_text_is_one_sentence_with_a_hint(text: str) -> None:
    with pytest.raises(InputError) as error:
        assume.gather([text], None)
    assert repr(text) in error.value.message
    assert "cpu.vendor=AMD" in str(error.value.hint)


def file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "facts.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_of_nested_facts(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "# by hand\ncpu:\n  vendor: amd\n  family: 25\nnccl.version: 2.30\n'gpu[0]':\n  pcie: {max_width: 8}\n"
        "env: {NCCL_IB_DISABLE: 1, NCCL_ALGO: ''}\nrdma.active: [mlx5_0]\nvm.guest: true\nkernel.version: '6.8'\n",
    )
    found = assume.gather([], path)
    assert {each.fact: each.value for each in found} == {
        "cpu.vendor": "AMD",
        "cpu.family": 25,
        "nccl.version": "2.30.7",
        "gpu[0].pcie.max_width": 8,
        "env.NCCL_IB_DISABLE": "1",
        "env.NCCL_ALGO": "",
        "rdma.active": ["mlx5_0"],
        "vm.guest": True,
        "kernel.version": "6.8",
    }
    assert found[1].origin == f"{path}:4"


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, "cpu.vendor: Intel\ncpu.family: 6\n")
    found = assume.gather(["cpu.vendor=AMD", "cpu.vendor=amd"], path)
    assert [(each.fact, each.value) for each in found] == [("cpu.vendor", "AMD"), ("cpu.family", 6)]


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_a_file_without_facts(tmp_path: Path, text: str) -> None:
    assert assume.gather([], file(tmp_path, text)) == []


LAUGHS = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{name}: &{name} {{x: *{before}, y: *{before}}}\n"
    for before, name in zip("abcdefghijklmn", "bcdefghijklmno", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("cpu:\n  vendor: [a, [b]]\n", 2, 11, "cpu.vendor is a list"),
        ("cpu:\n  vendor:\n", 2, 10, "cpu.vendor has no value"),
        ("- cpu\n", 1, 1, "no mapping"),
        ("just text", 1, 1, "no mapping"),
        ("a: 1\n? [x]\n: 2\n", 2, 3, "no name of a fact"),
        ("a: 1\nb c: 2\n", 2, 1, "'b c' is no name"),
        ("a: 1\nb: {\n", 3, 1, "no YAML"),
        ("a: 1\n\tb: 2\n", 2, 1, "no YAML"),
        (b"\xff", None, None, "UTF-8"),
        ("cpu.vendor: AMD\n".encode("utf-16"), None, None, "UTF-16 text"),
        (b"cpu.vendor: A\0MD\n", None, None, "NUL bytes"),
        ("? {a: 1}\n: 2\n", 1, 3, "a list or mapping is no name"),
        ("[" * 100_000, 1, 1001, "nesting"),
        ("x" * 2_000_000, None, None, "more than 1 MiB"),
        ("a: &a\n  b: *a\n", None, None, "aliases"),
        (LAUGHS, None, None, "aliases"),
    ],
)
def test_a_broken_file_is_named_with_its_place(
    tmp_path: Path, text: str | bytes, line: int | None, column: int | None, words: str
) -> None:
    path = file(tmp_path, text)
    with pytest.raises(InputError) as error:
        assume.gather([], path)
    assert words in error.value.message
    assert error.value.file == str(path)
    assert error.value.hint
    if line:
        assert (error.value.line, error.value.column) == (line, column)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        assume.gather([], tmp_path / name)


def test_one_gpu_or_all_of_them() -> None:
    found = applied("gpu.name=NVIDIA H200", "gpu[2].name=NVIDIA L40S", "gpu.pcie.max_width=16", "gpu[0].pcie.max_gen=5")
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA H200", "NVIDIA H200", "NVIDIA L40S"]
    assert [gpu.pcie for gpu in found.gpus] == [PcieLink(max_width=16, max_gen=5)] + [PcieLink(max_width=16)] * 2


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("gpu.compute_capability=9", "compute_capability", "9.0"),
        ("gpu.memory_bytes=85899345920", "memory_bytes", 85899345920),
        ("gpu.c2c_gbps=450", "c2c_gbps", 450.0),
        ("gpu.mig=true", "mig", True),
        ("gpu.numa_node=1", "numa_node", 1),
        ("gpu.virtualization=passthrough", "virtualization", "passthrough"),
    ],
)
def test_facts_of_a_gpu(text: str, field: str, value: Any) -> None:
    assert getattr(applied(text).gpus[0], field) == value


def test_peer_to_peer_of_every_pair_and_of_one() -> None:
    found = applied("p2p.read=CNS", "pair.p2p.write=OK", "pair[2, 0].p2p.read=OK").p2p
    assert found is not None
    assert len(found) == 6
    assert {(pair.a, pair.b) for pair in found if pair.read == "OK"} == {(0, 2), (2, 0)}
    assert {pair.write for pair in found} == {"OK"}


def test_peer_to_peer_that_was_read_keeps_the_rest() -> None:
    read = Snapshot(gpus=THREE.gpus[:2], p2p=[P2p(a=0, b=1, read="OK", nvlink="OK"), P2p(a=1, b=0, read="OK")])
    assert applied("p2p.read=NS", to=read).p2p == [P2p(a=0, b=1, read="NS", nvlink="OK"), P2p(a=1, b=0, read="NS")]


def test_the_host_keeps_what_was_read() -> None:
    read = Snapshot(host=Host(hostname="h", numa_nodes=[NumaNode(id=0)], dmi={"bios_version": "1"}))
    host = applied(
        "cpu.vendor=AMD",
        "cpu.sockets=2",
        "platform.vendor=Supermicro",
        "vm.hypervisor=KVM",
        "container.kind=docker",
        "shm.total_bytes=67108864",
        "limits.memlock_bytes=-1",
        "kernel.version=6.8",
        "kernel.command_line=iommu=pt quiet",
        to=read,
    ).host
    assert host.cpu is not None
    assert (host.hostname, host.numa_nodes) == ("h", [NumaNode(id=0)])
    assert (host.cpu.vendor, host.cpu.sockets, host.hypervisor, host.container) == ("AMD", 2, "KVM", "docker")
    assert host.dmi == {"bios_version": "1", "sys_vendor": "Supermicro"}
    assert (host.shm_total_bytes, host.memlock_bytes) == (67108864, -1)
    assert (host.kernel, host.command_line) == ("6.8", "iommu=pt quiet")


def test_the_driver_and_nccl() -> None:
    read = Snapshot(nccl_libraries=[NcclLibrary(path="/usr/lib/libnccl.so.2", version="2.20.5")])
    found = applied("driver.version=580.1", "driver.flavour=open", "cuda.version=13.0", "nccl.version=2.28.9", to=read)
    assert (found.driver.version, found.driver.flavour, found.driver.cuda) == ("580.1", "open", "13.0")
    assert found.nccl_libraries is not None
    assert [(library.path, library.version) for library in found.nccl_libraries] == [
        ("assumed", "2.28.9"),
        ("/usr/lib/libnccl.so.2", "2.20.5"),
    ]


def test_an_assumed_variable_takes_the_place_of_one_that_was_read() -> None:
    read = Snapshot(settings=[Setting(name="NCCL_ALGO", value="Ring", origin="environment")])
    first = applied("env.NCCL_ALGO=Tree", "env.NCCL_DEBUG=WARN", to=read).settings
    assert first is not None
    assert [(each.name, each.value, each.origin) for each in first] == [
        ("NCCL_DEBUG", "WARN", "assumed"),
        ("NCCL_ALGO", "Tree", "assumed"),
    ]
    assert applied("env.NCCL_ALGO=", to=read).settings == []


def test_one_assumed_variable_does_not_make_the_others_read() -> None:
    found = applied("env.NCCL_ALGO=Tree")
    assert found.settings is None
    assert found.assumptions == [Assumption(fact="env.NCCL_ALGO", value="Tree")]


def test_every_assumption_is_kept_even_those_without_a_place() -> None:
    before = assume.apply(THREE, [Assumption(fact="iommu.translated", value=False)])
    after = assume.apply(before, [Assumption(fact="cpu.vendor", value="AuthenticAMD", origin="facts.yaml:1")])
    assert after.assumptions == [
        Assumption(fact="iommu.translated", value=False),
        Assumption(fact="cpu.vendor", value="AMD", origin="facts.yaml:1"),
    ]


@pytest.mark.parametrize("text", ["gpu[9].name=X", "pair[0,9].p2p.read=OK"])
def test_a_device_that_is_not_here_is_one_sentence_with_a_hint(text: str) -> None:
    with pytest.raises(InputError, match="not here") as error:
        applied(text)
    assert text.partition("=")[0] in error.value.message
    assert error.value.hint == "The GPUs here are 0, 1, 2."


def test_mappings_that_name_each_other_are_refused_at_once(tmp_path: Path) -> None:
    layers = "".join(f"l{n}: &l{n} {{{', '.join(f'k{m}: *l{n - 1}' for m in range(10))}}}\n" for n in range(1, 14))
    path = tmp_path / "facts.yaml"
    path.write_text("l0: &l0 {}\n" + layers)
    with pytest.raises(InputError, match=r"facts.yaml:1:.*aliases are not taken"):
        assume.gather([], path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("cpu.vendor: AMD\ncpu.vendor: Intel\n", 2, ["`cpu.vendor` is said twice", "line 1"]),
        ("nccl: 2.28.9\ncpu: AMD EPYC 7742\nnccl.version: 2.27\n", 3, ["`nccl.version`", "line 1"]),
        ("cpu: {vendor: AMD}\ncpu.vendor: AMD\n", 2, ["`cpu.vendor`", "line 1"]),
    ],
)
def test_a_fact_said_twice_in_a_file_is_an_error(tmp_path: Path, text: str, line: int, words: list[str]) -> None:
    path = file(tmp_path, text)
    with pytest.raises(InputError) as error:
        assume.gather([], path)
    assert error.value.message.startswith(f"{path}:{line}: ")
    assert all(word in error.value.message for word in words)


def test_a_variable_without_a_value_is_removed(tmp_path: Path) -> None:
    found = assume.gather([], file(tmp_path, "NCCL_ALGO:\nNCCL_PROTO: null\nframework: ''\n"))
    assert [(each.fact, each.value) for each in found] == [
        ("env.NCCL_ALGO", ""),
        ("env.NCCL_PROTO", ""),
        ("job.framework", ""),
    ]


def test_the_model_of_a_cpu_names_its_maker() -> None:
    read = Snapshot(host=Host(cpu=Cpu(vendor="Intel", family=6)))
    found = applied("cpu=AMD EPYC 7742 64-Core Processor", to=read)
    assert found.host.cpu is not None
    assert found.host.cpu.vendor == "AMD"
    assert [(each.fact, each.value) for each in found.assumptions] == [
        ("cpu.model_name", "AMD EPYC 7742 64-Core Processor"),
        ("cpu.vendor", "AMD"),
    ]
    assert len(applied("cpu=EPYC 7742", "cpu.vendor=AMD", to=read).assumptions) == 2


@pytest.mark.parametrize(
    ("said", "follows"),
    [
        ({"p2p.all_ok": True}, {"pair.p2p.read": "OK", "p2p.none_ok": False, "p2p.any_refused": False}),
        ({"p2p.none_ok": True}, {"pair.p2p.read": "NS", "p2p.all_ok": False, "p2p.any_refused": True}),
        ({"p2p.any_refused": False}, {"pair.p2p.ok": True, "p2p.all_ok": True}),
        ({"pair.p2p.refused": True}, {"pair.p2p.ok": False, "p2p.none_ok": True}),
        ({"nvlink.any": False}, {"pair.nvlinks": 0, "nvlink.full_mesh": False, "p2p.pairs_without_nvlink": 3}),
        ({"iommu.translated": True}, {"iommu.mode": "DMA", "iommu.enabled": True}),
        ({"vm.guest": False}, {"vm.hypervisor": "none"}),
        ({"container.any": False}, {"container.kind": "none"}),
        ({"platform.product": "g5.12xlarge"}, {"vm.guest": True}),
        ({"platform.product": "p6-b200.48xlarge"}, {"vm.guest": True}),
        ({"platform.product": "Standard_ND96isr_H100_v5"}, {"vm.guest": True}),
        ({"platform.product": "a3-megagpu-8g"}, {"vm.guest": True}),
        ({"platform.product": "BM.GPU.H100.8"}, {"vm.guest": False, "vm.hypervisor": "none"}),
        ({"platform.product": "g4dn.metal"}, {"vm.guest": False}),
        ({"gpus.model": "NVIDIA L40S"}, {"gpu.name": "NVIDIA L40S", "gpus.architecture": "ada"}),
        ({"gpus.models": ["NVIDIA L40S"]}, {"gpus.model": "NVIDIA L40S"}),
        ({"fabric.completed": True}, {"gpu.fabric.state": "completed"}),
        ({"gdr.peermem": True}, {"modules.nvidia_peermem": True, "gdr.any_path": True}),
        ({"rdma.link_layers": ["Ethernet"]}, {"rdma.local_link_layers": ["Ethernet"]}),
        ({"rdma.link_layers": ["InfiniBand"]}, {"rdma.local_link_layers": ["InfiniBand"], "rdma.efa": False}),
        ({"nic.link_layer": "InfiniBand"}, {"rdma.link_layers": ["InfiniBand"], "rdma.efa": False, "rdma.any": True}),
        ({"rdma.active": ["mlx5_0"]}, {"rdma.any": True}),
        ({"gpu.name": "NVIDIA A100-SXM4-80GB", "gpu.nvlinks.inactive": 2}, {"gpu.nvlinks.active": 10}),
    ],
)
def test_a_fact_made_from_others_says_something_of_those(said: dict[str, object], follows: dict[str, object]) -> None:
    machine = assume.apply(THREE, [Assumption(fact=name, value=value) for name, value in said.items()])
    base = facts.gather(machine, graph.build(machine))
    for name, value in follows.items():
        found = [base.fact(name, subject) for subject in base.subjects[kind_of(name)]]
        assert [each.value if isinstance(each, facts.Known) else each for each in found] == [value] * len(found), name


def test_a_product_that_is_no_machine_type_says_nothing_of_guests() -> None:
    machine = assume.apply(THREE, [Assumption(fact="platform.product", value="AS -4124GS-TNR")])
    assert [each.fact for each in machine.assumptions] == ["platform.product"]


def test_one_pair_that_was_named_wins_over_all_pairs() -> None:
    said = [Assumption(fact="pair[0,1].p2p.ok", value=False), Assumption(fact="p2p.any_refused", value=False)]
    machine = assume.apply(THREE, said)
    answers = {(each.a, each.b): each.read for each in machine.p2p or []}
    assert (answers[0, 1], answers[0, 2]) == ("NS", "OK")


@pytest.mark.parametrize("name", told.MADE_FROM)
def test_a_fact_that_is_only_counted_is_refused_with_the_one_to_assume(name: str) -> None:
    value = {"bool": True, "int": 1, "number": 1.0, "text": "x", "texts": ["x"]}[VOCABULARY[name].type]
    with pytest.raises(InputError) as error:
        assume.apply(THREE, [Assumption(fact=name, value=value)])
    assert "made from other facts" in error.value.message
    named = told.MADE_FROM[name].split(", ")
    assert all(each in VOCABULARY or each.startswith("env.") for each in named)
    assert all(each in (error.value.hint or "") for each in named)


def told_of(name: str, *facts: str) -> advise.Analysis:
    machine = detect.read([f"fixture:{name}"], stdin=io.BytesIO())
    return advise.analyse(assume.apply(machine, assume.gather(list(facts), None)))


def test_what_follows_from_a_told_fact_is_not_listed_as_told() -> None:
    assert told_of("8x4090", "p2p=ok").advice.assumed == ["pair.p2p.ok = true"]
    assert told_of("dgx-h100", "instance=p5.48xlarge").advice.assumed == [
        "platform.product = p5.48xlarge (read: DGXH100)"
    ]


@pytest.mark.parametrize(
    ("fact", "shown"),
    [
        ("driver=550.54.15", "driver.version = 550.54.15 (read: 590.48.01)"),
        ("driver=590.48.01", "driver.version = 590.48.01"),
        ("gpu.name=NVIDIA L40S", "gpu.name = NVIDIA L40S (read: NVIDIA GeForce RTX 4090)"),
        ("gpu[1].name=NVIDIA L40S", "gpu[1].name = NVIDIA L40S (read: NVIDIA GeForce RTX 4090)"),
        ("vm=yes", "vm.guest = true (read: false)"),
        ("vm.hypervisor=KVM", "vm.hypervisor = KVM (read: none)"),
        ("numa.count=2", "numa.count = 2 (read: 1)"),
        ("job.nodes=2", "job.nodes = 2"),
    ],
)
def test_a_told_fact_says_what_was_read_in_its_place(fact: str, shown: str) -> None:
    assert told_of("8x4090", fact).advice.assumed == [shown]


def test_a_told_guest_has_no_hypervisor_that_was_not_told() -> None:
    host = told_of("8x4090", "vm=yes").advice.node.host
    assert "guest of a hypervisor" in host
    assert "guest of KVM" in told_of("8x4090", "vm=yes", "vm.hypervisor=KVM").advice.node.host


def test_ports_of_the_machine_that_stands_in_are_not_said_to_be_unread() -> None:
    assert not any("matrix" in note for note in told_of("dgx-h100", "instance=p5.48xlarge").advice.notes)


def eight(links: int, *facts: str) -> advise.Analysis:
    names = [f"GPU{index}" for index in range(8)]
    rows = ["\t".join(["", *names])]
    rows += ["\t".join([row, *(" X " if row == name else f"NV{links}" for name in names)]) for row in names]
    machine = detect.read(["-"], stdin=io.BytesIO("\n".join([*rows, ""]).encode()))
    return plans.analyse(assume.apply(machine, assume.gather(list(facts), None)))


@pytest.mark.parametrize(
    ("name", "known"), [("NVIDIA GeForce RTX 4090", "none"), ("NVIDIA A100-SXM4-80GB", "12"), ("H100 SXM", None)]
)
def test_more_links_than_the_told_model_has_are_told_and_not_praised(name: str, known: str | None) -> None:
    advice = eight(18, f"gpu.name={name}").advice
    notes = [note for note in advice.notes if "NVLinks of GPU0" in note]
    assert advice.plan is not None
    if known is None:
        assert not notes
        assert advice.plan.optimal
        return
    (note,) = notes
    assert "says 18" in note
    assert f"says {known}." in note
    assert not advice.plan.optimal
    assert not any("bridges" in right.text for right in advice.already_right)


def test_fewer_told_numa_nodes_than_the_gpus_are_on_are_told() -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4-7\t1\n"
    machine = detect.read(["-"], stdin=io.BytesIO(matrix.encode()))

    def notes(count: int) -> list[str]:
        told = assume.apply(machine, assume.gather([f"numa.count={count}"], None))
        return [note for note in advise.advise(told).notes if "NUMA nodes" in note]

    (note,) = notes(1)
    assert "told says 1" in note
    assert "2 (0-1)" in note
    assert not notes(2)


def test_many_unknown_names_are_counted_behind_the_first() -> None:
    with pytest.raises(InputError) as error:
        assume.gather([f"nothing.like_{number}=1" for number in range(100)], None)
    assert len(error.value.details) == 21
    assert error.value.details[-1] == "… and 80 more."


def test_a_file_of_another_encoding_says_only_that(tmp_path: Path) -> None:
    file = tmp_path / "facts.yaml"
    file.write_bytes(b"job.message: caf\xe9\n")
    with pytest.raises(InputError, match="not UTF-8 text") as error:
        assume.gather([], file)
    assert "nested" not in str(error.value)


def test_a_long_message_is_shown_by_its_first_line() -> None:
    log = "\n".join(["first line", *(f"rank {number} waits" for number in range(5000))])
    (shown,) = told_of("8x4090", f"job.message={log}").advice.assumed
    assert shown.startswith("job.message = first line… (5001 lines, ")
