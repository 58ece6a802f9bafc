"""Which transport NCCL picks between two GPUs."""

from itertools import product

import pytest

from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.model import transport

PATHS = [path for path in NcclPath if NcclPath.NVL <= path <= NcclPath.SYS]
LEVELS = [NcclPath.LOC, *PATHS]


@pytest.mark.parametrize(
    ("path", "p2p_ok", "level", "shm_disabled", "kind", "word"),
    [
        ("NVL", True, "PXB", False, "P2P", "within the level PXB"),
        ("NVL", True, "NVL", False, "P2P", "NVL"),
        ("NVL", True, "LOC", False, "SHM", "switched off"),
        ("NVL", True, "LOC", True, "NET", "NCCL_SHM_DISABLE"),
        ("NVB", True, "NVL", False, "SHM", "beyond the level NVL"),
        ("PHB", True, "PXB", False, "SHM", "PHB is beyond the level PXB"),
        ("PHB", True, "PHB", False, "P2P", "PHB"),
        ("PIX", False, "SYS", False, "SHM", "the driver refuses"),
        ("PIX", False, "SYS", True, "NET", "the driver refuses"),
        ("NVL", False, "PXB", False, None, "stops with an error"),
        ("NVB", False, "PXB", False, "P2P", "through a third one"),
        ("NVL", False, "LOC", False, "SHM", "switched off"),
        ("NVB", False, "NVL", False, "SHM", "beyond"),
    ],
)
def test_known_pairs(path: str, p2p_ok: bool, level: str, shm_disabled: bool, kind: str | None, word: str) -> None:
    choice = transport(path=NcclPath[path], p2p_ok=p2p_ok, level=NcclPath[level], shm_disabled=shm_disabled)
    assert choice.kind == kind
    assert word in choice.why


def test_different_machines_talk_over_the_network() -> None:
    assert transport(path=None, p2p_ok=None, level=None, shm_disabled=None, same_host=False).kind == "NET"


def test_an_unknown_leaves_the_choice_open_only_when_it_depends_on_it() -> None:
    """Every unknown input is tried with all its values: the answer is None exactly when they disagree."""
    for path, p2p_ok, level, shm in product([None, *PATHS], [None, True, False], [None, *LEVELS], [None, True, False]):
        choice = transport(path=path, p2p_ok=p2p_ok, level=level, shm_disabled=shm)
        possible = {
            transport(path=a, p2p_ok=b, level=c, shm_disabled=d).kind
            for a, b, c, d in product(
                PATHS if path is None else [path],
                [True, False] if p2p_ok is None else [p2p_ok],
                LEVELS if level is None else [level],
                [True, False] if shm is None else [shm],
            )
        }
        if path is None and p2p_ok is False:
            possible.discard(None)  # an NVLink path would be an error, which is left aside while no path is known
        expected = possible.pop() if len(possible) == 1 else None
        assert choice.kind == expected, (path, p2p_ok, level, shm)


def test_what_is_missing_is_named() -> None:
    choice = transport(path=None, p2p_ok=None, level=NcclPath.PXB, shm_disabled=False)
    assert choice.kind is None
    assert "driver grants" in choice.why
    assert "the path" in choice.why
    assert "level" not in choice.why
    assert "NCCL_SHM_DISABLE" in transport(path=NcclPath.SYS, p2p_ok=True, level=NcclPath.PXB, shm_disabled=None).why
