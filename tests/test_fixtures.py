"""Every bundled machine is whole, agrees with itself, is built by its script and names nobody."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from topoadvisor.files import shipped
from topoadvisor.ingest import topo_matrix
from topoadvisor.redact import redact
from topoadvisor.snapshot import Gpu, Matrix, PciDevice, Snapshot, decode, encode
from topoadvisor.topology import graph

REPOSITORY = Path(__file__).resolve().parents[1]
FIXTURES = REPOSITORY / "fixtures"
CAPTURE = REPOSITORY / "../shared/capture_h200x2"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/snapshot.json"))
PASTED = {"paste-8xa100"}
LARGEST_BYTES = 150_000

EXPECTED_NAMES = {
    "1xh200-kvm",
    "2x3090-bridge",
    "2x5090-container",
    "2xh200-kvm",
    "4xa100-pcie",
    "4xa6000-acs",
    "4xrtxpro6000",
    "8x4090",
    "8xa100-p2p-disabled",
    "8xl40s",
    "dgx-1v",
    "dgx-a100",
    "dgx-h100",
    "dgx-h100-broken-link",
    "gh200",
    "paste-8xa100",
}


def load(name: str) -> Snapshot:
    return decode((FIXTURES / name / "snapshot.json").read_bytes(), file=name)


def table_of(snapshot: Snapshot) -> Matrix:
    (table,) = snapshot.matrices
    return table


def address_of(gpu: Gpu) -> str:
    assert gpu.address is not None
    return gpu.address


@pytest.fixture(scope="module")
def build() -> ModuleType:
    specification = importlib.util.spec_from_file_location("fixtures_build", FIXTURES / "build.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_all_machines_are_there() -> None:
    assert set(NAMES) == EXPECTED_NAMES


@pytest.mark.parametrize("name", NAMES)
def test_decodes_strictly_and_encodes_to_the_same_bytes(name: str) -> None:
    data = (shipped("fixtures") / name / "snapshot.json").read_bytes()
    assert encode(decode(data)) == data
    assert len(data) < LARGEST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_has_a_note_on_its_origin(name: str) -> None:
    note = (FIXTURES / name / "README.md").read_text()
    assert note.startswith(f"# {name}\n")
    assert re.search(r"\*\*(Captured|Public|Given by its owner|Chosen)\*\*", note)
    assert f"`{name}`" in (FIXTURES / "README.md").read_text()


def test_build_check_passes() -> None:
    done = subprocess.run(
        [sys.executable, str(FIXTURES / "build.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_check_finds_a_file_that_is_stale_and_one_that_is_missing(build: ModuleType, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "snapshot.json").write_bytes(encode(load(name)))
    assert build.stale(tmp_path) == []
    changed = msgspec.structs.replace(load("gh200"), captured_at="2000-01-01T00:00:00Z")
    (tmp_path / "gh200/snapshot.json").write_bytes(encode(changed))
    (tmp_path / "8xl40s/snapshot.json").unlink()
    assert {path.parent.name for path, _ in build.stale(tmp_path)} == {"gh200", "8xl40s"}


@pytest.mark.parametrize("name", NAMES)
def test_names_nobody(name: str) -> None:
    snapshot = load(name)
    text = encode(snapshot).decode() + (FIXTURES / name / "README.md").read_text()
    uuids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", text, re.I)
    assert all(re.fullmatch(r"00000000-0000-4000-8000-0000000000\d\d", uuid) for uuid in uuids)
    assert snapshot.host.hostname in (None, "host-1")
    assert not re.search(r"\b\d{1,3}(\.\d{1,3}){3}\b", text), "an IPv4 address"
    assert not re.search(r"\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b", text, re.I), "a MAC address"
    assert not re.search(
        r"serial|uuid=", "".join((snapshot.host.dmi or {}).keys()) + text.replace("serial numbers", "")
    )


@pytest.mark.parametrize("name", NAMES)
def test_redaction_finds_nothing_to_replace(name: str) -> None:
    snapshot = msgspec.structs.replace(load(name), redacted=True)
    assert redact(snapshot) == snapshot


@pytest.mark.parametrize("name", NAMES)
def test_every_source_that_is_not_ok_says_why(name: str) -> None:
    snapshot = load(name)
    assert snapshot.sources
    assert all(source.reason for source in snapshot.sources if source.status != "ok")
    if name not in PASTED:
        assert {text.source for text in snapshot.raw} <= {source.name for source in snapshot.sources}


@pytest.mark.parametrize("name", NAMES)
def test_printed_matrix_is_read_as_the_matrix_beside_it(name: str) -> None:
    snapshot = load(name)
    (text,) = [raw.text for raw in snapshot.raw if raw.source == "nvidia-smi topo -m"]
    assert topo_matrix.parse(text, file=name) == snapshot.matrices


@pytest.mark.parametrize("name", NAMES)
def test_gpus_are_the_same_everywhere(name: str) -> None:
    snapshot = load(name)
    assert [gpu.index for gpu in snapshot.gpus] == list(range(len(snapshot.gpus)))
    assert table_of(snapshot).gpus == [f"GPU{gpu.index}" for gpu in snapshot.gpus]
    if name in PASTED:
        assert snapshot.pci is None
        assert snapshot.p2p is None
        return
    assert snapshot.pci is not None
    displays = [
        function
        for function in snapshot.pci
        if function.vendor == "0x10de" and (function.class_code or "").startswith("0x03")
    ]
    assert [function.address for function in displays] == [gpu.address for gpu in snapshot.gpus]
    assert [function.device for function in displays] == [gpu.pci_device for gpu in snapshot.gpus]
    everyone = range(len(snapshot.gpus))
    assert [(pair.a, pair.b) for pair in snapshot.p2p or []] == list(itertools.permutations(everyone, 2))


@pytest.mark.parametrize("name", sorted(set(NAMES) - PASTED))
def test_matrix_has_the_rdma_devices_that_sysfs_has(name: str) -> None:
    snapshot = load(name)
    rdma = [nic.name for nic in snapshot.nics or [] if nic.rdma]
    assert list(table_of(snapshot).nic_legend.values()) == rdma


@pytest.mark.parametrize("name", sorted(set(NAMES) - PASTED))
def test_tree_is_whole(name: str) -> None:
    functions = {function.address: function for function in load(name).pci or []}
    for function in functions.values():
        assert function.root
        if function.parent is not None:
            above = functions[function.parent]
            assert (above.class_code, above.root, above.numa_node) == ("0x060400", function.root, function.numa_node)


def link_class(functions: dict[str, PciDevice], a: str, b: str) -> str:
    """The class of two devices from the tree alone: at most one bridge of a switch above each is PIX."""
    chains = []
    for address in (a, b):
        chain: list[str] = []
        above = functions[address].parent
        while above is not None:
            chain.append(above)
            above = functions[above].parent
        chains.append(chain)
    shared = set(chains[0]) & set(chains[1])
    if shared:
        longest = max(len([bridge for bridge in chain if bridge not in shared]) for chain in chains)
        return "PIX" if longest <= 1 else "PXB"
    if functions[a].root == functions[b].root:
        return "PHB"
    return "NODE" if functions[a].numa_node == functions[b].numa_node else "SYS"


@pytest.mark.parametrize("name", sorted(set(NAMES) - PASTED))
def test_tree_gives_the_printed_classes(name: str) -> None:
    snapshot, table = load(name), table_of(load(name))
    functions = {function.address: function for function in snapshot.pci or []}
    addresses = {f"GPU{gpu.index}": address_of(gpu) for gpu in snapshot.gpus}
    rdma = {nic.name: nic.address for nic in snapshot.nics or []}
    addresses |= {label: rdma[device] or "" for label, device in table.nic_legend.items()}
    wrong = {
        (row, column): (cell, link_class(functions, addresses[row], addresses[column]))
        for row, cells in table.cells.items()
        for column, cell in cells.items()
        if not cell.startswith("NV") and cell != link_class(functions, addresses[row], addresses[column])
    }
    assert wrong == {}
    for pair in snapshot.p2p or []:
        expected = link_class(functions, addresses[f"GPU{pair.a}"], addresses[f"GPU{pair.b}"])
        assert pair.common_ancestor == expected


@pytest.mark.parametrize("printed", [True, False], ids=["with the matrix", "without"])
@pytest.mark.parametrize("name", NAMES)
def test_topology_has_the_printed_classes(name: str, printed: bool) -> None:
    snapshot, table = load(name), table_of(load(name))
    if not printed:
        if name in PASTED:
            pytest.skip("there is nothing but the matrix")
        snapshot = msgspec.structs.replace(snapshot, matrices=[], raw=[])
    topology = graph.build(snapshot)
    nodes = {f"GPU{gpu.index}": f"gpu:{gpu.index}" for gpu in snapshot.gpus}
    nodes |= {label: f"nic:{device}" for label, device in table.nic_legend.items()}
    pairs = [(a, b) for a, b in itertools.combinations(nodes, 2) if "GPU" in a]
    built = {(a, b): topology.pair(nodes[a], nodes[b]).link_class for a, b in pairs}
    assert built == {(a, b): table.cells[a][b] for a, b in pairs}
    assert topology.disagreements == ()


@pytest.mark.parametrize("name", sorted(set(NAMES) - PASTED))
def test_nvlinks_add_up_to_the_printed_classes(name: str) -> None:
    snapshot, table = load(name), table_of(load(name))
    for a, b in itertools.permutations(snapshot.gpus, 2):
        up = [[link for link in gpu.nvlinks or [] if link.active] for gpu in (a, b)]
        count = sum(1 for link in up[0] if link.remote_address == b.address) or min(
            sum(1 for link in links if link.remote_type == "switch") for links in up
        )
        cell = table.cells[f"GPU{a.index}"][f"GPU{b.index}"]
        assert cell == f"NV{count}" if count else not cell.startswith("NV")
    switches = {
        link.remote_address
        for gpu in snapshot.gpus
        for link in gpu.nvlinks or []
        if link.remote_type == "switch" and not link.remote_hidden
    }
    assert switches == {function.address for function in snapshot.pci or [] if function.class_code == "0x068000"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - PASTED))
def test_peer_answers_agree_with_the_printed_tables(name: str) -> None:
    snapshot = load(name)
    options = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pci"}
    raw = {text.source: text.text for text in snapshot.raw}
    for option, capability in options.items():
        rows = re.findall(r"^ GPU(\d+)\t(.*)\t$", raw[f"nvidia-smi topo -p2p {option}"], re.M)
        printed = {
            (int(a), b): answer for a, cells in rows for b, answer in enumerate(cells.split("\t")) if int(a) != b
        }
        assert printed == {(pair.a, pair.b): getattr(pair, capability) for pair in snapshot.p2p or []}


def test_seed_machine_is_the_one_that_was_described() -> None:
    snapshot = load("8x4090")
    classes = {
        frozenset((a, b)): "NODE" if (a < 4) != (b < 4) else "PIX" if (a, b) in ((0, 1), (6, 7)) else "PXB"
        for a, b in itertools.combinations(range(8), 2)
    }
    cells = table_of(snapshot).cells
    assert {frozenset((a, b)): cells[f"GPU{a}"][f"GPU{b}"] for a, b in itertools.permutations(range(8), 2)} == classes
    assert {gpu.name for gpu in snapshot.gpus} == {"NVIDIA GeForce RTX 4090"}
    assert {(gpu.pcie.max_gen, gpu.pcie.current_width) for gpu in snapshot.gpus if gpu.pcie} == {(4, 16)}
    assert len(snapshot.host.numa_nodes or []) == 1
    assert snapshot.driver.version == "590.48.01"
    assert "OK" not in {pair.read for pair in snapshot.p2p or []}
    assert [(setting.name, setting.value) for setting in snapshot.settings or []] == [
        ("CUDA_VISIBLE_DEVICES", "0,1,2,4"),
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_P2P_LEVEL", "SYS"),
    ]


def test_cube_mesh_uses_six_links_a_gpu_and_misses_twelve_pairs() -> None:
    cells = table_of(load("dgx-1v")).cells
    of_gpu = [[cells[f"GPU{a}"][f"GPU{b}"] for b in range(8) if a != b] for a in range(8)]
    assert all(Counter(row) == Counter({"NV1": 2, "NV2": 2, "SYS": 3}) for row in of_gpu)


def test_broken_link_is_the_only_difference() -> None:
    whole, broken = load("dgx-h100"), load("dgx-h100-broken-link")
    assert [sum(1 for link in gpu.nvlinks or [] if not link.active) for gpu in broken.gpus] == [0, 0, 0, 0, 0, 2, 0, 0]
    cells = table_of(broken).cells
    for a, b in itertools.permutations(range(8), 2):
        assert cells[f"GPU{a}"][f"GPU{b}"] == ("NV16" if 5 in (a, b) else "NV18")
    same = msgspec.structs.replace(broken, gpus=whole.gpus, matrices=whole.matrices, raw=whole.raw)
    assert same == whole


def test_healthy_machine_has_no_setting_and_only_compute_adapters_up() -> None:
    snapshot = load("dgx-h100")
    assert snapshot.settings == []
    active = [nic.name for nic in snapshot.nics or [] for port in nic.ports or [] if port.state == "ACTIVE"]
    assert active == [f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)]


def test_forgotten_line_is_line_three() -> None:
    (setting,) = [one for one in load("8xa100-p2p-disabled").settings or [] if one.name == "NCCL_P2P_DISABLE"]
    assert (setting.value, setting.origin, setting.line) == ("1", "/etc/nccl.conf", 3)


@pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture is not beside this checkout")
def test_captured_machine_holds_the_captured_texts() -> None:
    raw = {text.source: text.text for text in load("2xh200-kvm").raw}
    for command, file in (
        ("topo -m", "topo-m"),
        ("topo -p2p r", "topo-p2p-r"),
        ("topo -p2p w", "topo-p2p-w"),
        ("topo -p2p n", "topo-p2p-n"),
        ("topo -p2p a", "topo-p2p-a"),
        ("topo -p2p p", "topo-p2p-p"),
        ("nvlink -s", "nvlink-s"),
    ):
        assert raw[f"nvidia-smi {command}"] == (CAPTURE / f"{file}.txt").read_text()


@pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture is not beside this checkout")
def test_captured_machine_holds_what_nvml_answered() -> None:
    answers = msgspec.json.decode((CAPTURE / "nvml_queries.json").read_bytes())
    snapshot = load("2xh200-kvm")
    assert snapshot.driver.version == answers["driver"]
    for gpu, said in zip(snapshot.gpus, answers["gpus"], strict=True):
        assert (gpu.name, gpu.uuid, gpu.memory_bytes) == (said["Name"], said["UUID"], said["MemoryInfo"]["total"])
        assert gpu.bar1_bytes == said["BAR1MemoryInfo"]["bar1Total"]
        assert gpu.nvlinks is not None
        assert len(gpu.nvlinks) == len(said["links"])
        assert all(link.remote_hidden and link.remote_address is None for link in gpu.nvlinks)
