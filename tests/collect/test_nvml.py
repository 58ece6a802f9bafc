import json
import os
import sys
import textwrap
import types
from pathlib import Path

import pytest

from topoadvisor.collect import nvml
from topoadvisor.collect.world import Process
from topoadvisor.snapshot import P2p


def reading(module):
    pieces = []
    nvml.read(module, pieces.append)
    return nvml.gather(pieces)


@pytest.fixture
def h200(fakes):
    return fakes.FakeNvml(fakes.h200_pair())


def with_answers(fakes, **answers):
    return fakes.FakeNvml({**fakes.h200_pair(), **answers})


def test_two_h200_in_a_guest(h200):
    read = reading(h200)
    assert read.source.status == "ok"
    assert (read.driver.version, read.driver.cuda) == ("580.159.04", "13.0")
    gpu = read.gpus[1]
    assert (gpu.name, gpu.address, gpu.pci_device, gpu.brand) == ("NVIDIA H200", "0000:00:07.0", "0x2335", "NVIDIA")
    assert (gpu.compute_capability, gpu.memory_bytes, gpu.bar1_bytes) == ("9.0", 150754820096, 274877906944)
    assert (gpu.pcie.current_gen, gpu.pcie.device_max_gen, gpu.pcie.max_width) == (5, 5, 16)
    assert (gpu.numa_node, gpu.memory_numa_node, gpu.cpu_affinity) == (0, None, "0-31")
    assert (gpu.mig, gpu.virtualization, gpu.performance_state, gpu.c2c_gbps) == (False, "passthrough", 0, 0.0)


def test_links_to_hidden_switches(h200):
    links = reading(h200).gpus[0].nvlinks
    assert len(links) == 18
    assert {(link.active, link.generation, link.raw_mbps, link.remote_type) for link in links} == {
        (True, "4.0", 26562, "switch")
    }
    assert all(link.remote_hidden and link.remote_address is None for link in links)


def test_all_zero_cluster_is_no_identity(h200):
    fabric = reading(h200).gpus[0].fabric
    assert (fabric.state, fabric.status, fabric.cluster_uuid, fabric.clique) == ("completed", 0, None, 0)


def test_fabric_identity_is_read_from_our_own_struct(fakes):
    def fabric(_handle, reference):
        reference._obj.cluster_uuid[:] = bytes(range(16))
        reference._obj.state = 2
        reference._obj.clique = 5
        return 0

    read = reading(with_answers(fakes, nvmlDeviceGetGpuFabricInfoV=fabric)).gpus[0].fabric
    assert read.cluster_uuid == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (read.state, read.clique) == ("in-progress", 5)


def test_every_ordered_pair_with_its_own_integers(h200):
    pairs = reading(h200).p2p
    wanted = {"read": "OK", "write": "OK", "nvlink": "OK", "atomics": "OK", "pci": "NS", "common_ancestor": "PHB"}
    assert pairs == [P2p(a=0, b=1, **wanted), P2p(a=1, b=0, **wanted)]


def test_only_reading_functions_are_called(h200):
    reading(h200)
    assert [name for name in h200.called if not name.startswith(("nvmlDeviceGet", "nvmlSystemGet"))] == [
        "nvmlInit",
        "nvmlShutdown",
    ]


def test_not_supported_is_kept_but_leaves_the_source_ok(h200):
    read = reading(h200)
    error = next(error for error in read.source.errors if error.call == "nvmlDeviceGetNumaNodeId")
    assert (error.error, error.code, error.subject) == ("NotSupported", 3, "gpu:0")
    assert read.source.status == "ok"


def test_gpu_without_nvlink_has_none_rather_than_unknown(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetNvLinkState=fakes.NOT_SUPPORTED))
    assert read.gpus[0].nvlinks == []
    assert any(e.call == "nvmlDeviceGetNvLinkState" and e.subject == "gpu:0/link:0" for e in read.source.errors)


def test_links_are_bounded_when_the_end_never_comes(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetNvLinkState=1))
    assert len(read.gpus[0].nvlinks) == 64


def test_inactive_link_is_listed_as_inactive(fakes):
    def state(_handle, link):
        return fakes.INVALID if link > 17 else int(link != 3)

    links = reading(with_answers(fakes, nvmlDeviceGetNvLinkState=state)).gpus[0].nvlinks
    assert [link.link for link in links if not link.active] == [3]
    assert links[3].remote_type is None


def test_speeds_of_an_old_driver(fakes):
    old = fakes.field_values(dict.fromkeys((84, 85, 86, 87, 88, 89), (0, 1, 25781)))

    def state(_handle, link):
        return 1 if link < 6 else fakes.INVALID

    links = reading(with_answers(fakes, nvmlDeviceGetFieldValues=old, nvmlDeviceGetNvLinkState=state)).gpus[0].nvlinks
    assert [link.raw_mbps for link in links] == [25781] * 6


def test_failed_field_entry_is_unknown_though_it_holds_a_number(fakes):
    liar = fakes.field_values({164: (3, 1, 99)})
    links = reading(with_answers(fakes, nvmlDeviceGetFieldValues=liar)).gpus[0].nvlinks
    assert {link.raw_mbps for link in links} == {None}


def test_chip_to_chip_bandwidth_is_the_sum_of_working_links(fakes):
    grace = fakes.field_values({170: (0, 1, 10), 171: (0, 1, 1), 172: (0, 1, 44712)})
    assert reading(with_answers(fakes, nvmlDeviceGetFieldValues=grace)).gpus[0].c2c_gbps == 447.12


def test_chip_to_chip_unknown_when_only_its_presence_is(fakes):
    there = types.SimpleNamespace(isC2cEnabled=1)
    assert reading(with_answers(fakes, nvmlDeviceGetC2cModeInfoV=there)).gpus[0].c2c_gbps is None
    assert reading(with_answers(fakes, nvmlDeviceGetC2cModeInfoV=fakes.NOT_SUPPORTED)).gpus[0].c2c_gbps is None


def test_name_that_is_not_utf8_is_read_below_the_decoder(fakes):
    def name(_handle):
        return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    module = with_answers(fakes, nvmlDeviceGetName=name)
    function = module.nvmlDeviceGetName
    function.__wrapped__ = lambda _handle: b"NVIDIA \xff X"
    module.nvmlDeviceGetName = function
    read = reading(module)
    assert read.gpus[0].name == "NVIDIA � X"
    assert read.source.status == "partial"


def test_bytes_of_an_old_pynvml(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetName=b"Tesla V100", nvmlSystemGetDriverVersion=b"470.1"))
    assert (read.gpus[0].name, read.driver.version) == ("Tesla V100", "470.1")


def test_missing_function_costs_one_fact(fakes):
    answers = fakes.h200_pair()
    del answers["nvmlDeviceGetGpuFabricInfoV"], answers["nvmlDeviceGetNumaNodeId"]
    read = reading(fakes.FakeNvml(answers))
    assert read.gpus[0].fabric is None
    assert len(read.gpus[0].nvlinks) == 18
    assert read.source.status == "ok"
    assert {"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNumaNodeId"} <= {
        error.call for error in read.source.errors if error.error == "AttributeError"
    }


def test_lost_gpu_keeps_the_other(fakes):
    lost = fakes.nvml_error("GpuIsLost", 15)

    def address(handle):
        return lost if handle == 0 else fakes.pci_info(0, 0, 7)

    module = with_answers(fakes, nvmlDeviceGetPciInfo=address)
    read = reading(module)
    assert (read.gpus[0].name, read.gpus[0].address, read.gpus[0].nvlinks) == ("NVIDIA H200", None, None)
    assert (read.gpus[1].address, len(read.gpus[1].nvlinks)) == ("0000:00:07.0", 18)
    assert read.source.status == "partial"
    assert read.source.reason == "nvmlDeviceGetPciInfo about gpu:0 failed (GpuIsLost)"
    assert module.called.count("nvmlDeviceGetMemoryInfo") == 1  # nothing more was asked of the lost one


def test_gpu_whose_handle_fails_still_exists(fakes):
    def handle(index):
        return fakes.nvml_error("Unknown", 999) if index == 0 else index

    read = reading(with_answers(fakes, nvmlDeviceGetHandleByIndex=handle))
    assert [gpu.index for gpu in read.gpus] == [0, 1]
    assert read.gpus[0].name is None
    assert read.p2p is None


def test_refused_direction_stays_directed(fakes):
    def p2p(a, _b, capability):
        return fakes.nvml_error("Unknown", 999) if a == 1 and capability == 1 else 0

    pairs = reading(with_answers(fakes, nvmlDeviceGetP2PStatus=p2p)).p2p
    assert [(pair.a, pair.write) for pair in pairs] == [(0, "OK"), (1, None)]


@pytest.mark.parametrize(
    ("status", "word"), [(1, "CNS"), (2, "GNS"), (3, "TNS"), (4, "DR"), (5, "NS"), (6, "U"), (9, "U")]
)
def test_p2p_words(fakes, status, word):
    assert reading(with_answers(fakes, nvmlDeviceGetP2PStatus=status)).p2p[0].read == word


def test_unknown_performance_state_and_several_nodes_name_nothing(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetPerformanceState=32, nvmlDeviceGetMemoryAffinity=lambda *_: [3]))
    assert read.gpus[0].performance_state is None
    assert read.gpus[0].numa_node is None


def test_mig_not_supported_is_off_and_unknown_is_unknown(fakes):
    assert reading(with_answers(fakes, nvmlDeviceGetMigMode=fakes.NOT_SUPPORTED)).gpus[0].mig is False
    assert reading(with_answers(fakes, nvmlDeviceGetMigMode=fakes.nvml_error("Unknown", 999))).gpus[0].mig is None


def test_answers_of_a_wrong_type_cost_one_gpu_at_most(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetCudaComputeCapability=lambda handle: 9 if handle == 0 else [9, 0]))
    assert (read.gpus[0].name, read.gpus[0].compute_capability) == ("NVIDIA H200", None)
    assert read.gpus[1].compute_capability == "9.0"
    assert read.source.status == "partial"


@pytest.mark.parametrize(
    ("name", "code", "status", "sentence"),
    [
        ("LibraryNotFound", 12, "absent", "no NVIDIA driver is installed"),
        ("DriverNotLoaded", 9, "failed", "kernel driver is not loaded"),
        ("LibRmVersionMismatch", 18, "failed", "different versions"),
        ("NoPermission", 4, "failed", "may not talk"),
        ("", 77, "failed", "code 77"),
    ],
)
def test_nvml_that_does_not_start(fakes, name, code, status, sentence):
    error = fakes.nvml_error(name, code) if name else fakes.NVMLError(code)
    module = with_answers(fakes, nvmlInit=error)
    read = reading(module)
    assert (read.source.status, read.gpus, read.p2p) == (status, [], None)
    assert sentence in read.source.reason
    assert "nvmlShutdown" not in module.called


def test_library_that_is_there_but_cannot_be_loaded_names_the_cause(fakes):
    def init():
        error = fakes.nvml_error("LibraryNotFound", 12)
        error.__context__ = OSError("libnvidia-ml.so.1: wrong ELF class: ELFCLASS32")
        return error

    source = reading(with_answers(fakes, nvmlInit=init)).source
    assert (source.status, source.reason.endswith("wrong ELF class: ELFCLASS32")) == ("failed", True)


def test_no_gpu_is_an_answer(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetCount=0))
    assert (read.source.status, read.gpus, read.p2p) == ("ok", [], [])


def test_count_that_fails_is_a_failure(fakes):
    read = reading(with_answers(fakes, nvmlDeviceGetCount=fakes.nvml_error("Unknown", 999)))
    assert (read.source.status, read.gpus, read.p2p) == ("failed", [], None)


def test_worker_lines_survive_noise_and_a_cut(fakes, h200):
    output = fakes.worker_output(h200)
    noisy = b"FutureWarning: something\n" + output[: len(output) - 40]
    read = nvml.gather(nvml.parse_pieces(noisy), cut="cut short", seconds=1.0)
    assert len(read.gpus) == 2
    assert (read.source.status, read.source.reason) == ("partial", "cut short, while asking about gpu:1>gpu:0")


HANGS = textwrap.dedent(
    """
    import sys, time, types
    fake = types.ModuleType("pynvml")
    fake.nvmlInit = lambda: None
    fake.nvmlDeviceGetCount = lambda: 3
    fake.nvmlDeviceGetHandleByIndex = lambda index: index
    def name(handle):
        if handle == 1:
            time.sleep(60)
        return "NVIDIA X"
    fake.nvmlDeviceGetName = name
    sys.modules["pynvml"] = fake
    print("a library prints to standard output")
    from topoadvisor.collect import nvml
    nvml.main()
    """
)


def test_hung_call_costs_what_was_not_yet_said():
    package = str(Path(nvml.__file__).resolve().parents[2])
    done = Process(
        [sys.executable, "-c", HANGS], {**os.environ, "PYTHONPATH": os.pathsep.join([package, *sys.path])}
    ).finish(3.0)
    assert done.code is None
    read = nvml.gather(nvml.parse_pieces(done.out), cut="NVML was cut off after 3 s", seconds=done.seconds)
    assert [gpu.name for gpu in read.gpus] == ["NVIDIA X", None, None]
    assert read.source.reason == "NVML was cut off after 3 s, while asking about gpu:1 (nvmlDeviceGetName)"
    assert read.source.status == "partial"


def test_answers_recorded_on_real_hardware(fakes):
    recorded = Path(__file__).resolve().parents[2] / "../shared/capture_h200x2/nvml_queries.json"
    if not recorded.exists():
        pytest.skip("the recording is not here")
    gpus = json.loads(recorded.read_text())["gpus"]
    read = reading(fakes.FakeNvml(fakes.h200_pair()))
    for gpu, record in zip(read.gpus, gpus, strict=True):
        assert gpu.uuid == record["UUID"]
        assert gpu.pci_device == f"0x{record['PciInfo']['pciDeviceId'] >> 16:04x}"
        assert gpu.memory_bytes == record["MemoryInfo"]["total"]
        assert [link.link for link in gpu.nvlinks] == [link["l"] for link in record["links"]]
        assert {link["remote"]["domain"] for link in record["links"]} == {fakes.HIDDEN.domain}


def test_answers_that_cannot_be_true_are_unknown(fakes):
    wrong = {
        "nvmlDeviceGetCudaComputeCapability": [-1, -1],
        "nvmlDeviceGetName": "",
        "nvmlDeviceGetFieldValues": fakes.field_values({170: (0, 1, 1), 171: (0, 1, 1), 172: (0, 1, 0xFFFFFFFF)}),
    }
    gpu = reading(with_answers(fakes, **wrong)).gpus[0]
    assert (gpu.name, gpu.compute_capability, gpu.c2c_gbps) == (None, None, None)
    links = reading(with_answers(fakes, nvmlDeviceGetNvLinkState=lambda _, link: 1 if link < 2 else 0xFFFFFFFF)).gpus[0]
    assert [link.active for link in links.nvlinks][:3] == [True, True, None]


def test_a_field_of_a_type_that_we_do_not_know_costs_itself(fakes):
    def query(_handle, wanted):
        entries = fakes.field_values({164: (0, 1, 25000)})(None, wanted)
        entries[1].valueType = 12
        return entries

    links = reading(with_answers(fakes, nvmlDeviceGetFieldValues=query)).gpus[0].nvlinks
    assert [link.raw_mbps for link in links][:3] == [25000, None, 25000]
