from __future__ import annotations

from collections.abc import Callable

from topoadvisor.snapshot import Gpu, NvLink
from topoadvisor.topology import bandwidth, nvlink

A, B, C = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
Links = Callable[..., list[NvLink]]


def wire(*gpus: Gpu) -> nvlink.Wiring:
    nodes = {f"gpu:{gpu.index}": gpu for gpu in gpus}
    return nvlink.from_links(nodes, {node: bandwidth.model_of(gpu) for node, gpu in nodes.items()}, origin="nvml")


def test_links_are_counted_by_peer(links: Links) -> None:
    wiring = wire(
        Gpu(index=0, address=A, nvlinks=links((B, 2), (C, 1), down=3)),
        Gpu(index=1, address=B, nvlinks=links((A, 2))),
        Gpu(index=2, address=C, nvlinks=links((A, 1))),
    )
    assert wiring.between("gpu:0", "gpu:1") == 2
    assert wiring.between("gpu:0", "gpu:2") == 1
    assert wiring.between("gpu:1", "gpu:2") == 0
    assert wiring.disagreements == []


def test_ends_that_count_differently(links: Links) -> None:
    wiring = wire(
        Gpu(index=0, address=A, nvlinks=links((B, 4))), Gpu(index=1, address=B, nvlinks=links((A, 3), down=1))
    )
    assert wiring.between("gpu:0", "gpu:1") == 3
    (found,) = wiring.disagreements
    assert found.values == (("nvml at gpu:0", "4"), ("nvml at gpu:1", "3"))


def test_one_end_is_enough_when_the_other_was_not_read(links: Links) -> None:
    wiring = wire(Gpu(index=0, address=A, nvlinks=links((B, 4))), Gpu(index=1, address=B))
    assert wiring.between("gpu:0", "gpu:1") == 4
    assert wiring.disagreements == []


def test_links_without_a_known_far_end_are_not_guessed() -> None:
    lost = [NvLink(link=number, active=True) for number in range(4)]
    wiring = wire(Gpu(index=0, address=A, nvlinks=lost), Gpu(index=1, address=B, nvlinks=lost))
    assert wiring.between("gpu:0", "gpu:1") is None
    (note,) = wiring.notes
    assert "gpu:0 (4), gpu:1 (4)" in note


def test_a_gpu_that_is_lost_or_hidden_leaves_the_others_known(links: Links) -> None:
    away = [NvLink(link=9, active=True, remote_type="gpu", remote_address=C)]
    seen = [
        Gpu(index=0, address=A, nvlinks=links((B, 4)) + away),
        Gpu(index=1, address=B, nvlinks=links((A, 4)) + away),
    ]
    assert wire(*seen).between("gpu:0", "gpu:1") == 4
    lost = wire(*seen, Gpu(index=2))
    assert lost.between("gpu:0", "gpu:1") == 4
    assert lost.between("gpu:0", "gpu:2") is None
    apart = [Gpu(index=0, address=A, nvlinks=away), Gpu(index=1, address=B, nvlinks=away)]
    assert wire(*apart).between("gpu:0", "gpu:1") == 0


def test_far_ends_of_an_unknown_kind_are_no_switches_beside_links_to_gpus(links: Links) -> None:
    """Drivers and texts that do not say what stands at the far end."""
    other = [NvLink(link=9, active=True, remote_address=C)]
    apart = wire(Gpu(index=0, address=A, nvlinks=other), Gpu(index=1, address=B, nvlinks=other))
    assert apart.between("gpu:0", "gpu:1") is None
    joined = wire(
        Gpu(index=0, address=A, nvlinks=links((B, 4)) + other), Gpu(index=1, address=B, nvlinks=links((A, 4)) + other)
    )
    assert joined.between("gpu:0", "gpu:1") == 4


def test_unread_state_is_not_up() -> None:
    unread = [NvLink(link=0, remote_type="gpu", remote_address=B)]
    back = [NvLink(link=0, remote_type="gpu", remote_address=A)]
    wiring = wire(Gpu(index=0, address=A, nvlinks=unread), Gpu(index=1, address=B, nvlinks=back))
    assert wiring.between("gpu:0", "gpu:1") is None


def test_a_board_without_nvlink_needs_no_reading() -> None:
    wiring = wire(Gpu(index=0, name="NVIDIA L40S"), Gpu(index=1, name="NVIDIA L40S"))
    assert wiring.between("gpu:0", "gpu:1") == 0


def test_links_back_to_the_gpu_itself_join_nothing(links: Links) -> None:
    wiring = wire(Gpu(index=0, address=A, nvlinks=links((A, 12))), Gpu(index=1, address=B, nvlinks=links((B, 12))))
    assert wiring.between("gpu:0", "gpu:1") == 0
    assert "back to the same GPU" in wiring.notes[0]


def test_the_narrower_gpu_decides_through_switches(links: Links) -> None:
    wiring = wire(*(Gpu(index=index, nvlinks=links(("hidden", count))) for index, count in enumerate((18, 17, 18))))
    assert wiring.between("gpu:0", "gpu:1") == 17
    assert wiring.between("gpu:0", "gpu:2") == 18
    assert wiring.hidden == {"gpu:0", "gpu:1", "gpu:2"}


def mesh(count: int, gpus: int, model: str | None = None) -> nvlink.Wiring:
    nodes = [f"gpu:{number}" for number in range(gpus)]
    cells = {(a, b): count for place, a in enumerate(nodes) for b in nodes[place + 1 :]}
    return nvlink.from_cells(cells, nodes, {node: bandwidth.model_of(Gpu(index=0, name=model)) for node in nodes})


def test_a_switch_is_inferred_only_where_wires_cannot_do() -> None:
    assert mesh(12, 8).switches
    assert mesh(6, 16).switches
    assert mesh(8, 4).switches
    assert not mesh(6, 4).switches, "HGX H100 with 4 GPUs is wired directly"
    assert not mesh(4, 4).switches, "HGX A100 with 4 GPUs is wired directly"
    assert not mesh(2, 8).switches
    assert mesh(2, 8, "Tesla V100-SXM3-32GB").switches, "7 peers of 2 links are more than 6"
    assert not mesh(12, 2).switches
    assert mesh(12, 2, "NVIDIA A100-SXM4-80GB").switches
    assert not mesh(12, 2, "NVIDIA A100 80GB PCIe").switches
