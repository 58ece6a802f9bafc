from __future__ import annotations

from typing import Any

import msgspec
import pytest

from topoadvisor.errors import InputError, NothingDetermined
from topoadvisor.files import shipped
from topoadvisor.ingest import assume, detect
from topoadvisor.nccl.defaults import Machine, default
from topoadvisor.nccl.settings import registry
from topoadvisor.predict.document import Difference, Feature, Prediction
from topoadvisor.predict.predict import predict
from topoadvisor.predict.variables import DECISIVE, Variables
from topoadvisor.snapshot import Setting, Snapshot, decode

RELEASES = (
    *("2.7.3", "2.8.4", "2.9.9", "2.10.3", "2.11.4", "2.12.12", "2.13.4", "2.14.3", "2.15.5", "2.16.5", "2.17.1"),
    *("2.18.6", "2.19.4", "2.20.5", "2.21.5", "2.22.3", "2.23.4", "2.24.3", "2.25.1", "2.26.6", "2.27.7", "2.28.9"),
    *("2.29.7", "2.30.7"),
)


def fixture(name: str, *facts: str) -> Snapshot:
    snapshot = decode((shipped("fixtures") / name / "snapshot.json").read_bytes())
    return assume.apply(snapshot, assume.gather(list(facts), None)) if facts else snapshot


def setting(name: str, value: str) -> Setting:
    return Setting(name=name, value=value, origin="job.env", line=1)


def feature(prediction: Prediction, name: str) -> Feature:
    return next(each for each in prediction.features if each.name == name)


def difference(prediction: Prediction, name: str, recommended: bool = False) -> Difference:
    return next(each for each in prediction.differences if (each.name, each.recommended) == (name, recommended))


def transports(prediction: Prediction) -> set[tuple[str, str | None, str | None]]:
    return {(pair.transport, pair.via, pair.path) for pair in prediction.pairs}


def test_a_board_with_switches() -> None:
    found = predict(fixture("dgx-h100"))
    assert transports(found) == {("P2P", "CUMEM", "NVL")}
    (group,) = found.groups
    assert group.rings is not None
    assert (group.channels, group.rings.searched, group.rings.gbps, group.rings.path) == (24, 12, 30, "NVL")
    assert group.rings.orders == [[f"GPU{number}" for number in range(8)]] * 12
    states = {each.name: each.state for each in found.features}
    assert states == {"CUMEM": "on", "NVLS": "unknown", "PXN": "on", "MNNVL": "off", "LL128": "on"}
    own = [each for each in found.ports if each.own]
    assert {(each.path, each.send, each.receive) for each in own} == {("PIX", "on", "on")}
    assert {each.path for each in found.ports if not each.own} == {"PXN"}


def test_a_ring_of_v100s() -> None:
    found = predict(fixture("dgx-1v"))
    (group,) = found.groups
    assert group.rings is not None
    assert (group.channels, group.rings.searched, group.rings.gbps) == (12, 6, 20)
    assert len({tuple(order) for order in group.rings.orders}) == 4
    assert {via for _, via, path in transports(found) if path == "NVB"} == {"indirect"}
    part = predict(fixture("dgx-1v"), [0, 1, 2, 3])
    assert part.gpus == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert part.groups[0].channels == 8


def test_no_p2p() -> None:
    found = predict(fixture("8x4090"), list(range(8)))
    assert {pair.transport for pair in found.pairs} == {"SHM"}
    assert {pair.why for pair in found.pairs} == {"the driver refuses peer access"}
    assert feature(found, "LL128").state == "off"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("NCCL_P2P_DISABLE", "1", "12 pairs (GPU0-GPU1, GPU0-GPU2, GPU0-GPU3, GPU1-GPU2, …): SHM instead of P2P/CUMEM"),
        ("NCCL_P2P_DISABLE", "1", "16 pairs (GPU0-GPU4, GPU0-GPU5, GPU0-GPU6, GPU0-GPU7, …): NET instead of P2P/CUMEM"),
        ("NCCL_SHM_DISABLE", "1", None),
        ("NCCL_CUMEM_ENABLE", "0", "all 28 pairs: P2P/IPC instead of P2P/CUMEM"),
        ("NCCL_MAX_NCHANNELS", "8", "rings: 12 x 30 GB/s over NVL (8 channels) instead of"),
        ("NCCL_MIN_NCHANNELS", "32", "rings: 12 x 30 GB/s over NVL (32 channels) instead of"),
        ("NCCL_MIN_CTAS", "32", "(32 channels) instead of"),
        ("NCCL_MAX_CTAS", "8", "(8 channels) instead of"),
        ("NCCL_PXN_DISABLE", "1", "PXN off instead of on: NCCL_PXN_DISABLE=1"),
        ("NCCL_NET_GDR_LEVEL", "LOC", "GPUDirect RDMA off instead of on when sending, 64 of 64 ways"),
        ("NCCL_NET_GDR_READ", "0", "GPUDirect RDMA off instead of on when sending"),
        ("NCCL_IB_HCA", "=mlx5_0", "not used: mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9, mlx5_10, mlx5_11"),
        ("NCCL_IB_DISABLE", "1", "PXN off instead of on: NCCL_IB_DISABLE=1 leaves no RDMA port"),
        ("NCCL_NVLS_ENABLE", "0", "NVLS off instead of unknown: NCCL_NVLS_ENABLE=0"),
        ("NCCL_NVLS_ENABLE", "true", "NVLS off instead of unknown: NCCL_NVLS_ENABLE=true"),
        ("NCCL_PROTO", "Simple", "LL128 off instead of on: NCCL_PROTO=Simple leaves it out"),
        ("NCCL_IB_TIMEOUT", "22", None),
    ],
)
def test_what_a_setting_changes(name: str, value: str, expected: str | None) -> None:
    found = difference(predict(fixture("dgx-h100"), None, [setting(name, value)]), name)
    assert found.origin == "job.env:1"
    if expected is None:
        assert found.changes == []
    else:
        assert any(expected in change for change in found.changes), found.changes


def test_what_the_advice_changes() -> None:
    found = predict(fixture("dgx-h100"), None, [setting("NCCL_P2P_DISABLE", "1")])
    advised = difference(found, "NCCL_P2P_DISABLE", recommended=True)
    assert advised.value is None
    assert "rings: 12 x 30 GB/s over NVL (24 channels) instead of" in " ".join(advised.changes)


def test_a_host_that_nccl_divides() -> None:
    """Two NICs of 200 Gbit/s below the switches are more than the link between the sockets, in NCCL's model."""
    old = predict(fixture("8xl40s"))
    assert [group.gpus for group in old.groups] == [[f"GPU{n}" for n in range(4)], [f"GPU{n}" for n in range(4, 8)]]
    across = next(pair for pair in old.pairs if (pair.a, pair.b) == ("GPU0", "GPU4"))
    assert across.transport == "NET"
    new = predict(fixture("8xl40s", "nccl.version=2.30.7"))
    across = next(pair for pair in new.pairs if (pair.a, pair.b) == ("GPU0", "GPU4"))
    assert across.transport == "SHM"
    assert "shared memory comes before the network" in across.why
    whole = predict(fixture("8xl40s"), None, [setting("NCCL_NET_DISABLE_INTRA", "1")])
    assert len(whole.groups) == 1
    assert whole.groups[0].rings is not None
    assert (whole.groups[0].rings.searched, whole.groups[0].rings.gbps) == (1, 20)


def test_several_hosts() -> None:
    found = predict(fixture("dgx-h100"), hosts=2)
    (group,) = found.groups
    assert group.rings is not None
    assert (found.hosts, group.channels, group.rings.gbps, group.rings.network_path) == (2, 16, 48, "PIX")
    assert [port for pair in group.rings.ports for port in pair][:4] == ["mlx5_0", "mlx5_3", "mlx5_3", "mlx5_0"]
    assert feature(found, "LL128").state == "on"
    same = difference(predict(fixture("dgx-h100"), None, [setting("NCCL_CROSS_NIC", "0")], hosts=2), "NCCL_CROSS_NIC")
    assert any("8 x 45 GB/s over NVL (16 channels) instead of 8 x 48" in change for change in same.changes)


def test_several_hosts_without_a_port() -> None:
    found = predict(fixture("8x4090"), hosts=2)
    assert found.groups[0].rings is None
    assert "network ports" in (found.groups[0].why or "")
    old = predict(fixture("dgx-h100", "nccl.version=2.26.6"), hosts=2)
    assert "2.27.5" in (old.groups[0].why or "")


def test_few_fast_channels_over_the_network_are_used_four_times() -> None:
    found = predict(fixture("dgx-h100"), [0, 1], hosts=2)
    group = found.groups[0]
    assert group.rings is not None
    expected = 4 if group.rings.gbps > 45 and group.rings.searched < 8 else 2
    assert group.channels == expected * group.rings.searched


def matrix(text: str, *facts: str) -> Snapshot:
    return assume.apply(detect.from_bytes(text.encode(), file="x"), assume.gather(list(facts), None))


PASTED = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tPIX\tPIX\nGPU1\tPIX\t X \tPIX\nmlx5_0\tPIX\tPIX\t X \n"


def test_what_was_not_read_is_unknown_and_says_why() -> None:
    found = predict(matrix(PASTED))
    assert found.nccl.version == "2.30.7"
    assert "not known" in found.nccl.origin
    (group,) = found.groups
    assert group.rings is None
    assert "CPU" in (group.why or "")
    assert any("rings and channels" in each for each in found.unknown)
    assert {(each.send, each.receive) for each in found.ports} == {("unknown", "unknown")}
    known = predict(matrix(PASTED, "gpu.name=NVIDIA L40S", "cpu.vendor=AMD", "nccl.version=2.27.7"))
    assert known.groups[0].rings is not None
    assert known.groups[0].rings.path == "PIX"


def test_what_the_driver_grants_is_inferred_where_nobody_asked_it() -> None:
    joined = predict(matrix("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n", "gpu.name=NVIDIA A40"))
    assert [pair.transport for pair in joined.pairs] == ["P2P", "P2P"]
    assert all("taken for granted" in " ".join(pair.inferred) for pair in joined.pairs)
    known = predict(fixture("dgx-h100"))
    assert all(pair.inferred == [] for pair in known.pairs)


def test_geforce_boards_are_not_offered_rdma() -> None:
    text = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tPHB\tPIX\nGPU1\tPHB\t X \tPHB\nmlx5_0\tPIX\tPHB\t X \n"
    found = predict(matrix(text, "gpu.name=NVIDIA GeForce RTX 4090", "cpu.vendor=AMD"))
    assert {(each.send, each.receive, each.why) for each in found.ports} == {
        ("off", "off", "stock drivers do not offer it on GeForce boards")
    }
    spark = predict(matrix("\tGPU0\tmlx5_0\nGPU0\t X \tNODE\nmlx5_0\tNODE\t X \n", "gpu.name=NVIDIA GB10"))
    assert {each.why for each in spark.ports} == {"GB10 does not offer it"}
    quadro = predict(matrix(text, "gpu.name=NVIDIA RTX A6000", "cpu.vendor=AMD"))
    assert "unknown" in {each.receive for each in quadro.ports}


def test_with_efa_the_plugin_decides_about_rdma() -> None:
    snapshot = fixture("dgx-h100")
    nics = [msgspec.structs.replace(nic, driver="efa") if nic.rdma else nic for nic in snapshot.nics or []]
    found = predict(msgspec.structs.replace(snapshot, nics=nics))
    own = [each for each in found.ports if each.own]
    assert {(each.send, each.receive) for each in own} == {("unknown", "unknown")}
    assert all("plugin decides" in each.why for each in own)


def test_cuda_visible_devices_makes_the_job() -> None:
    found = predict(fixture("8x4090"))
    assert found.gpus == ["GPU0", "GPU1", "GPU2", "GPU4"]
    assert any("CUDA_VISIBLE_DEVICES" in note for note in found.notes)
    assert len(predict(fixture("8x4090"), [0, 1]).gpus) == 2


def test_one_gpu() -> None:
    found = predict(fixture("dgx-h100"), [3])
    assert found.pairs == []
    assert found.groups[0].channels is None
    assert "nobody" in (found.groups[0].why or "")


def test_bad_input() -> None:
    with pytest.raises(InputError, match="no GPU 9"):
        predict(fixture("dgx-h100"), [0, 9])
    with pytest.raises(InputError, match="GPU 0 is named twice"):
        predict(fixture("dgx-h100"), [0, 1, 0])
    with pytest.raises(NothingDetermined, match="no GPU was found"):
        predict(Snapshot())
    with pytest.raises(NothingDetermined, match=r"2\.17\.1"):
        predict(fixture("dgx-h100", "nccl.version=2.17.1"))


def test_a_release_whose_search_is_not_known() -> None:
    found = predict(fixture("dgx-h100", "nccl.version=2.18.3"))
    assert found.groups[0].rings is None
    assert "2.18.3" in (found.groups[0].why or "")
    assert {pair.transport for pair in found.pairs} == {"P2P"}


@pytest.mark.parametrize("version", RELEASES[RELEASES.index("2.19.4") :])
def test_every_release_predicts(version: str) -> None:
    found = predict(fixture("dgx-1v", f"nccl.version={version}"))
    assert found.nccl.version == version
    assert found.groups[0].rings is not None
    assert found.groups[0].rings.total_gbps == 120


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("name", DECISIVE)
def test_every_variable_has_a_default_in_every_release(name: str, version: str) -> None:
    """Levels and switches: known whenever the release reads the variable, and read by it or not without an error."""
    info = registry()[name]
    found = default(info, version, Machine(arch="x86_64", cpu_vendor="Intel", gpus=8))
    assert (found.value is not None) == info.exists_in(version), found.why
    assert found.why
    assert isinstance(Variables([], version).number(name), int)
    text: Any = Variables([Setting(name=name, value="1", origin="x")], version).text(name)
    assert (text == "1") == info.exists_in(version)


@pytest.mark.parametrize(
    ("variables", "found", "channels"),
    [
        ({}, 24, 24),
        ({}, 80, 64),
        ({"NCCL_MAX_NRINGS": "4"}, 24, 4),
        ({"NCCL_MAX_NRINGS": "4", "NCCL_MAX_NCHANNELS": "6"}, 24, 6),
        ({"NCCL_MAX_NCHANNELS": "0"}, 24, 1),
        ({"NCCL_MIN_NCHANNELS": "1000"}, 24, 64),
        ({"NCCL_MIN_NCHANNELS": "-5"}, 24, 24),
        ({"NCCL_MAX_NCHANNELS": "4", "NCCL_MIN_NCHANNELS": "8"}, 24, 8),
        ({"NCCL_MAX_CTAS": "0"}, 24, 24),
        ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "16"}, 24, 16),
    ],
)
def test_limits_of_channels(variables: dict[str, str], found: int, channels: int) -> None:
    settings = [Setting(name=name, value=value, origin="x") for name, value in variables.items()]
    assert Variables(settings, "2.30.7").channels(found)[0] == channels


def test_the_document_is_the_same_every_time() -> None:
    first, second = (msgspec.json.encode(predict(fixture("4xa100-pcie"))) for _ in range(2))
    assert first == second
    assert msgspec.json.decode(first, type=Prediction).schema == "topoadvisor.predict/1"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("NCCL_ALGO", "Ring, Tree", "initialization fails"),
        ("NCCL_PROTO", "Simple,foo", "does not know `foo`"),
        ("NCCL_BUFFSIZE", "8M", "NCCL dies of it"),
        ("NCCL_SOCKET_IFNAME", "ib0", "matches no interface"),
        ("NCCL_NET", "", "initialization fails"),
    ],
)
def test_settings_that_keep_nccl_from_running(name: str, value: str, why: str) -> None:
    machine = fixture("dgx-h100")
    found = predict(machine, environment=[setting(name, value)])
    (failure,) = found.failures
    assert (failure.name, failure.value, failure.origin) == (name, value, "job.env:1")
    assert why in failure.why
    assert (found.groups, found.features) == (predict(machine).groups, predict(machine).features)
    assert name not in {each.name for each in found.differences if not each.recommended}
    assert [name, value] in [[each.name, each.value] for each in found.settings]


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_ALGO", "Ring,Tree"), ("NCCL_BUFFSIZE", "8388608"), ("NCCL_SOCKET_IFNAME", "^docker"), ("NCCL_NET", "IB")],
)
def test_settings_with_which_nccl_runs(name: str, value: str) -> None:
    assert predict(fixture("dgx-h100"), environment=[setting(name, value)]).failures == []


def test_an_older_nccl_drops_a_word() -> None:
    machine = fixture("dgx-h100", "nccl.version=2.21.5")
    assert predict(machine, environment=[setting("NCCL_ALGO", "Ring, Tree")]).failures == []


@pytest.mark.parametrize("name", ["NCCL_GRAPH_FILE", "NCCL_TOPO_FILE"])
def test_a_file_decides_about_rings(name: str) -> None:
    found = predict(fixture("dgx-1v"), environment=[setting(name, "/opt/some.xml")])
    assert [(group.rings, group.channels) for group in found.groups] == [(None, None)]
    assert f"{name}=/opt/some.xml" in " ".join(found.unknown)
    assert "rings: not known instead of 6 x 20" in " ".join(difference(found, name).changes)


def test_a_file_that_is_not_there() -> None:
    machine = fixture("dgx-1v")

    def missing(name: str) -> Prediction:
        return predict(machine, environment=[Setting(name=name, value="/x", origin="environment", exists=False)])

    assert [each.name for each in missing("NCCL_GRAPH_FILE").failures] == ["NCCL_GRAPH_FILE"]
    assert missing("NCCL_TOPO_FILE").failures == []
    assert missing("NCCL_TOPO_FILE").groups == predict(machine).groups


@pytest.mark.parametrize(("hypervisor", "said"), [("none", "bare metal"), ("KVM", "guests"), (None, "not read; with")])
def test_multicast_that_was_not_read(hypervisor: str | None, said: str) -> None:
    snapshot = fixture("dgx-h100")
    host = msgspec.structs.replace(snapshot.host, hypervisor=hypervisor)
    why = feature(predict(msgspec.structs.replace(snapshot, host=host)), "NVLS").why
    assert said in why
    assert "NVLS multicast support is available" in why, "the line that decides"


@pytest.mark.parametrize(
    ("machine", "state", "said"),
    [
        ("4xa100-pcie", "off", "begins with compute capability 9.0, and here it is 8.0"),
        ("8x4090", "off", "begins with compute capability 9.0, and here it is 8.9"),
        ("2x5090-container", "off", "these GPUs are at none"),
        ("dgx-h100", "unknown", "not read"),
    ],
)
def test_nvlink_between_hosts_where_the_fabric_was_not_read(machine: str, state: str, said: str) -> None:
    snapshot = fixture(machine)
    gpus = [msgspec.structs.replace(gpu, fabric=None) for gpu in snapshot.gpus]
    found = feature(predict(msgspec.structs.replace(snapshot, gpus=gpus)), "MNNVL")
    assert (found.state, said in found.why) == (state, True), found.why
