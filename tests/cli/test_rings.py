"""`topoadvisor rings`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topoadvisor import files
from topoadvisor.cli import main


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["rings", *arguments, "--format", "json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_document_of_an_nvswitch_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "fixture:dgx-h100")
    assert found["schema"] == "topoadvisor.rings/1"
    assert (found["total_gbps"], found["bound_gbps"], found["optimal"]) == (450.0, 450.0, True)
    assert found["channels"] == [{"order": [0, 1, 2, 3, 4, 5, 6, 7], "gbps": 450.0}]
    assert found["links"][0] == {"from": "GPU0", "to": "the NVSwitches", "kind": "nvlink", "gbps": 450.0}  # type: ignore[index]
    assert "0>1" in found["paths"]  # type: ignore[operator]


def test_without_p2p_the_compact_set_is_the_slower_one(capsys: pytest.CaptureFixture[str]) -> None:
    near, far = (document(capsys, "fixture:8x4090", "--gpus", gpus)["total_gbps"] for gpus in ("0,1,2,3", "0,1,2,4"))
    assert isinstance(near, float)
    assert isinstance(far, float)
    assert near < far


def test_the_models_differ_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    totals = {
        model: document(capsys, "fixture:2xh200-kvm", "--model", model)["total_gbps"] for model in ("expected", "nccl")
    }
    assert totals == {"expected": 450.0, "nccl": 370.8}


def test_a_number_of_channels(capsys: pytest.CaptureFixture[str]) -> None:
    equal = document(capsys, "fixture:dgx-h100", "--channels", "12")["equal_speed"]
    assert isinstance(equal, dict)
    assert (len(equal["channels"]), equal["gbps_each"]) == (12, 37.5)


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rings", "fixture:4xa100-pcie"]) == 0
    shown = capsys.readouterr().out
    assert "2 rings at once: 57.61 GB/s in all" in shown
    assert "Why: no set of rings can carry more" in shown
    assert "is full (28.81 GB/s)" in shown


@pytest.mark.parametrize("model", ["expected", "nccl"])
@pytest.mark.parametrize(
    ("source", "assumed", "told"),
    [
        ("8xa100-p2p-disabled", [], "This is the machine with NCCL_P2P_DISABLE unset, as advised; as it stands, NCCL"),
        ("dgx-h100", [], None),
        ("8xl40s", ["env.NCCL_P2P_LEVEL=NVL"], "This is the machine with NCCL_P2P_LEVEL=NVL, as it stands; without"),
        ("paste-8xa100", [], "Not read: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_SHM_DISABLE; they are taken as unset."),
        ("paste-8xa100", ["env.NCCL_P2P_DISABLE=1"], "This is the machine with NCCL_P2P_DISABLE unset, as advised"),
    ],
)
def test_the_variables_that_decide_about_ways_are_told(
    source: str, assumed: list[str], told: str | None, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", model, *(text for fact in assumed for text in ("--assume", fact))]
    notes = document(capsys, f"fixture:{source}", *options)["notes"]
    assert isinstance(notes, list)
    assert [note.startswith(told) for note in notes[-1:]] == [True] if told else not any("machine" in n for n in notes)


def test_channels_that_meet_a_bound_that_rests_on_an_inference_are_not_called_the_best_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = ("gpu.name=NVIDIA A100-SXM4-80GB", "nccl.version=2.28.9")
    assert main(["rings", "fixture:paste-8xa100", "--model", "nccl", *(x for f in facts for x in ("--assume", f))]) == 0
    shown = capsys.readouterr().out
    assert "240 GB/s, all that the bound allows" in shown


def test_every_model_plans_for_the_machine_as_advised(capsys: pytest.CaptureFixture[str]) -> None:
    for model, gbps in (("expected", 300.0), ("nccl", 240.0)):
        found = document(capsys, "fixture:8xa100-p2p-disabled", "--model", model)
        assert (found["total_gbps"], found["optimal"]) == (gbps, True)
    assumed = document(capsys, "fixture:paste-8xa100", "--assume", "env.NCCL_P2P_DISABLE=1")
    assert assumed["channels"] == document(capsys, "fixture:paste-8xa100")["channels"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0,9"], "there is no GPU 9"),
        (["--gpus", "0"], "takes two different GPUs"),
        (["--gpus", "0,0"], "names GPU 0 twice"),
        (["--gpus", "3-1"], "no list of GPU indexes"),
        (["--gpus", ""], "no list of GPU indexes"),
        (["--gpus", "0,x"], "no list of GPU indexes"),
        (["--model", "measured"], "holds no measurements"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rings", "fixture:8x4090", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_measured_hops_hold_the_rings_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = json.loads((files.shipped("fixtures") / "4xa100-pcie" / "snapshot.json").read_text(encoding="utf-8"))
    snapshot["measurements"] = [
        {"kind": "peer-copy", "subject": f"gpu:{a}>gpu:{b}", "gbps": 20.0 if a + b == 3 else 10.0}
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    source = tmp_path / "measured.json"
    source.write_text(json.dumps(snapshot), encoding="utf-8")
    found = document(capsys, str(source), "--model", "measured")
    assert found["optimal"] is True
    # What leaves a GPU: its PCIe link (28.807 GB/s), and its bridge as slow as it was measured.
    assert found["total_gbps"] == pytest.approx(38.807, abs=1e-3)


def copied(machine: str, rate: Callable[[int, int], float | None]) -> dict[str, Any]:
    """A machine with copies between all pairs at these rates; None = that one was not measured."""
    snapshot: dict[str, Any] = json.loads(
        (files.shipped("fixtures") / machine / "snapshot.json").read_text(encoding="utf-8")
    )
    ways = itertools.permutations(range(len(snapshot["gpus"])), 2)
    snapshot["measurements"] = [
        {"kind": "peer-copy", "subject": f"gpu:{a}>gpu:{b}", "gbps": gbps, "peer_access": True}
        for a, b in ways
        if (gbps := rate(a, b)) is not None
    ]
    return snapshot


@pytest.mark.parametrize(
    ("rate", "total"),
    [
        (lambda a, b: 395.0, 395.0),
        (lambda a, b: 200.0 if 3 in (a, b) else 395.0, 200.0),
        (lambda a, b: 120.0 if {a, b} == {0, 1} else 395.0, 395.0),
        (lambda a, b: None if 7 in (a, b) else 395.0, 450.0),
    ],
    ids=["all", "one-gpu-slow", "one-pair-slow", "one-gpu-not-measured"],
)
def test_a_gpu_sends_to_several_no_faster_than_to_one(
    rate: Callable[[int, int], float | None], total: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through NVSwitches all hops of a GPU share its links: the wires' 450 GB/s is more than any copy over them has."""
    source = tmp_path / "measured.json"
    source.write_text(json.dumps(copied("dgx-h100", rate)), encoding="utf-8")
    found = document(capsys, str(source), "--model", "measured")
    assert found["total_gbps"] == pytest.approx(total, abs=1e-3)


def test_copies_of_another_driver_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = copied("dgx-h100", lambda a, b: 395.0)
    for run in snapshot["measurements"][:3]:
        run["driver"] = "550.54.15"
    source = tmp_path / "measured.json"
    source.write_text(json.dumps(snapshot), encoding="utf-8")
    said = "3 of 56 copies were measured with driver 550.54.15, and this is 580.95.05."
    assert said in document(capsys, str(source), "--model", "measured")["notes"]  # type: ignore[operator]
    assert said not in document(capsys, str(source))["notes"]  # type: ignore[operator]


def test_a_pcie_link_carries_what_its_copies_with_the_host_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = copied("8xl40s", lambda a, b: 22.0)
    snapshot["measurements"] += [
        {"kind": "host-copy", "subject": way, "gbps": 25.5}
        for gpu in range(8)
        for way in (f"gpu:{gpu}>host", f"host>gpu:{gpu}")
    ]
    source = tmp_path / "measured.json"
    source.write_text(json.dumps(snapshot), encoding="utf-8")
    assert document(capsys, str(source), "--model", "measured")["total_gbps"] == pytest.approx(25.5, abs=1e-3)


def with_failure(tmp_path: Path, machine: str, **failure: object) -> str:
    """A machine whose pairs were all measured and one of which failed, as a file."""
    snapshot = json.loads((files.shipped("fixtures") / machine / "snapshot.json").read_text(encoding="utf-8"))
    n = len(snapshot["gpus"])
    snapshot["measurements"] = [
        {"kind": "peer-copy", "subject": f"gpu:{a}>gpu:{b}", "gbps": 390.0, "peer_access": True}
        for a in range(n)
        for b in range(n)
        if a != b and {"kind": "peer-copy", "subject": f"gpu:{a}>gpu:{b}"}.items() - failure.items()
    ] + [failure]
    source = tmp_path / "failed.json"
    source.write_text(json.dumps(snapshot), encoding="utf-8")
    return str(source)


def hops(found: dict[str, object]) -> set[frozenset[int]]:
    equal = found["equal_speed"]
    assert isinstance(equal, dict)
    assert isinstance(found["channels"], list)
    orders = [channel["order"] for channel in [*found["channels"], *equal["channels"]]]
    assert orders
    return {frozenset(hop) for order in orders for hop in zip(order, [*order[1:], order[0]], strict=True)}


@pytest.mark.parametrize("model", ["expected", "measured", "nccl"])
@pytest.mark.parametrize("outcome", ["wrong-data", "timeout", "crashed", "error"])
def test_no_ring_uses_a_pair_whose_copies_failed(
    model: str, outcome: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = with_failure(tmp_path, "dgx-h100", kind="peer-copy-both", subject="gpu:0<>gpu:1", outcome=outcome)
    found = document(capsys, source, "--model", model)
    assert frozenset((0, 1)) not in hops(found)
    told = f"Not used, because copies between them failed when they were measured: GPU0–GPU1 ({outcome})."
    assert isinstance(found["notes"], list)
    assert told in found["notes"]
    assert not any("Not measured" in note for note in found["notes"])


def test_a_failure_through_host_memory_does_not_touch_nvlink(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = with_failure(tmp_path, "dgx-h100", kind="staged-copy", subject="gpu:0>gpu:1", outcome="wrong-data")
    assert document(capsys, source)["notes"] == []


def test_failures_through_host_memory_count_where_peer_to_peer_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = with_failure(tmp_path, "8x4090", kind="host-copy", subject="host>gpu:3", outcome="timeout")
    found = document(capsys, source)
    assert found["channels"] == []
    assert isinstance(found["notes"], list)
    assert found["notes"][0].startswith("No ring: the pairs whose copies did not fail")
    assert "GPU0–GPU3 (timeout), GPU1–GPU3 (timeout)" in found["notes"][1]


def test_a_hop_through_host_memory_is_held_to_the_copy_with_p2p_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = with_failure(tmp_path, "8x4090", kind="staged-copy", subject="gpu:0>gpu:1", gbps=3.5, peer_access=False)
    found = document(capsys, source, "--model", "measured", "--gpus", "0,1")
    assert isinstance(found["links"], list)
    assert [link["gbps"] for link in found["links"] if link["kind"] == "measured"] == [3.5]


def test_without_any_pair_left_there_is_no_ring_and_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = with_failure(tmp_path, "2xh200-kvm", kind="peer-copy", subject="gpu:1>gpu:0", outcome="timeout")
    found = document(capsys, source, "--model", "measured")
    assert found["channels"] == []
    assert main(["emit", "nccl-graph", source, "--force"]) == 2
    assert "No ring: the pairs whose copies did not fail" in capsys.readouterr().err
    main(["scan", source])
    assert "No ring. Not used, because copies between them failed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("verb", [["rings"], ["pick", "2"], ["emit", "nccl-graph"], ["predict"]])
def test_no_gpu(verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.xml"
    file.write_text('<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel"/></system>')
    code = main([*verb, str(file)])
    out, err = capsys.readouterr()
    assert (code, out) == (3, "")
    assert "no GPU was found" in err


def test_equal_speed_is_the_best_of_all_numbers_of_channels(capsys: pytest.CaptureFixture[str]) -> None:
    best = document(capsys, "fixture:dgx-1v")["equal_speed"]
    of_25 = document(capsys, "fixture:dgx-1v", "--channels", "25")["equal_speed"]
    assert best == of_25
    assert (len(best["channels"]), best["gbps_each"], best["total_gbps"]) == (25, 6.25, 156.25)  # type: ignore[index,arg-type]


def test_the_most_for_a_number_of_channels_is_not_called_the_most_there_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["rings", "fixture:dgx-1v", "--channels", "7"]) == 0
    assert "7 × 16.67 = 116.7 GB/s, the most that 7 can carry" in capsys.readouterr().out
    assert main(["rings", "fixture:dgx-1v"]) == 0
    assert "25 × 6.25 = 156.2 GB/s, the most there can be" in capsys.readouterr().out


def test_no_channels_of_one_speed_without_bandwidths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "matrix.txt"
    cells = [["X" if a == b else "NV1" if (a + b) % 2 else "NV2" for b in range(4)] for a in range(4)]
    rows = ["\t" + "\t".join(f"GPU{gpu}" for gpu in range(4))]
    rows += [f"GPU{gpu}\t" + "\t".join(row) for gpu, row in enumerate(cells)]
    file.write_text("\n".join(rows))
    found = document(capsys, str(file))
    assert found["channels"]
    assert (found["total_gbps"], found["equal_speed"]) == (None, None)
    assert "Channels of one speed are not given" in " ".join(found["notes"])  # type: ignore[arg-type]
    assert main(["emit", "nccl-graph", "--model", "expected", str(file)]) == 2
    assert "bandwidths" in capsys.readouterr().err


def test_why_there_is_no_ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpus = "".join(
        f'<pci busid="0000:0{gpu + 1}:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">'
        f'<gpu dev="{gpu}" sm="80" rank="{gpu}" gdr="1"/></pci>'
        for gpu in range(2)
    )
    file = tmp_path / "system.xml"
    file.write_text(f'<system version="1"><cpu numaid="0" arch="x86_64">{gpus}</cpu></system>')
    notes = " ".join(document(capsys, str(file), "--model", "nccl")["notes"])  # type: ignore[arg-type]
    assert "the file leaves the NVLinks to NCCL" in notes
