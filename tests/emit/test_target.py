"""Reading, comparing and writing the file."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor import files
from topoadvisor.emit import target
from topoadvisor.errors import TopoAdvisorError

RAW = b"A=1\r\n\xff\x00B=2"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_byte_survives_reading_and_writing(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_bytes(RAW)
    text = target.read(path)
    assert text is not None
    target.write(path, f"X=1\n{text}", before=text)
    assert path.read_bytes() == b"X=1\n" + RAW
    assert (tmp_path / "nccl.conf.topoadvisor.bak").read_bytes() == RAW


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    assert target.read(path) is None
    assert target.write(path, "A=1\n", before=None) is None
    assert path.read_text() == "A=1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_when_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    os.utime(path, (1, 1))
    assert target.write(path, "A=1\n", before="A=1\n") is None
    assert path.stat().st_mtime == 1
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_kept_also_on_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    path.chmod(0o640)
    backup = target.write(path, "A=2\n", before="A=1\n")
    assert backup is not None
    assert mode(path) == mode(backup) == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    real = tmp_path / "real.conf"
    real.write_text("A=1\n")
    link = tmp_path / "nccl.conf"
    link.symlink_to(real)
    target.write(link, "A=2\n", before="A=1\n")
    assert link.is_symlink()
    assert real.read_text() == "A=2\n"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopoAdvisorError, match="is a directory"):
        target.read(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TopoAdvisorError, match="not a regular file"):
        target.read(pipe)


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "nccl.conf"
    with pytest.raises(TopoAdvisorError, match="does not exist"):
        target.write(path, "A=1\n", before=None)
    assert not path.parent.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    path.chmod(0o000)
    with pytest.raises(TopoAdvisorError, match="cannot be read"):
        target.read(path)
    path.chmod(0o600)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(TopoAdvisorError, match="cannot be written"):
            target.write(path, "A=2\n", before="A=1\n")
    finally:
        tmp_path.chmod(0o700)
    assert path.read_text() == "A=1\n"


def test_a_name_that_is_too_long_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TopoAdvisorError, match="cannot be"):
        target.read(tmp_path / ("n" * 300))


def test_difference() -> None:
    path = Path("/etc/nccl.conf")
    assert target.difference("A=1\n", "A=1\n", path) == ""
    created = target.difference(None, "A=1\n", path)
    assert created.startswith("--- /dev/null\n+++ /etc/nccl.conf\n")
    assert created.endswith("+A=1\n")
    changed = target.difference("A=1", "B=\udcff\nA=1", path)
    assert "\n A=1\n\\ No newline at end of file\n" in changed
    changed.encode()


def test_earlier_backups_stay(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("pristine\n")
    for text in ("one\n", "two\n", "three\n"):
        target.write(path, text, before=target.read(path))
    kept = [path.with_name(f"nccl.conf.topoadvisor.bak{end}").read_text() for end in ("", ".1", ".2")]
    assert kept == ["pristine\n", "one\n", "two\n"]


@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_what_stands_where_the_copy_would_go_stays(tmp_path: Path, kind: str) -> None:
    path, taken, victim = tmp_path / "nccl.conf", tmp_path / "nccl.conf.topoadvisor.bak", tmp_path / "victim"
    path.write_text("A=1\n")
    victim.write_text("mine")
    if kind == "link":
        taken.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(taken)
    else:
        taken.write_text("theirs")
    backup = target.write(path, "A=2\n", before="A=1\n")
    assert backup == tmp_path / "nccl.conf.topoadvisor.bak.1"
    assert backup.read_text() == "A=1\n"
    assert victim.read_text() == "mine"
    assert kind != "file" or taken.read_text() == "theirs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    os.chown(path, 1234, 2345)
    backup = target.write(path, "A=2\n", before="A=1\n")
    assert backup is not None
    for each in (path, backup):
        assert (each.stat().st_uid, each.stat().st_gid) == (1234, 2345)


def test_a_link_to_itself_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.symlink_to(path)
    with pytest.raises(TopoAdvisorError, match="cannot be read"):
        target.read(path)
    with pytest.raises(TopoAdvisorError, match="cannot be read"):
        target.write(path, "A=1\n", before=None)
    assert path.is_symlink()
    with pytest.raises(OSError, match="symbolic links"):
        files.write_atomically(path, "A=1\n")
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["n" * 255, "n" * 245, "é" * 127])
def test_a_name_as_long_as_names_can_be(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for text in ("A=1\n", "A=2\n", "A=3\n"):
        target.write(path, text, before=target.read(path))
    assert path.read_text() == "A=3\n"
    kept = {each.name for each in tmp_path.iterdir()} - {name}
    assert {each.rpartition(".topoadvisor")[2] for each in kept} == {".bak", ".bak.1"}
    assert all(name.startswith(each.partition(".topoadvisor")[0]) for each in kept)


def held(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir()}


def test_a_change_of_somebody_else_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    before = target.read(path)
    path.write_text("A=1\nMINE=1\n")
    with pytest.raises(TopoAdvisorError, match="changed meanwhile, so it is not written"):
        target.write(path, "B=1\nA=1\n", before=before)
    assert held(tmp_path) == {"nccl.conf": "A=1\nMINE=1\n"}


@pytest.mark.parametrize("before", ["A=1\n", None])
def test_nor_one_that_comes_while_the_new_file_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    path = tmp_path / "nccl.conf"
    if before is not None:
        path.write_text(before)

    def sync(handle: int, really: Callable[[int], None] = os.fsync) -> None:
        really(handle)
        path.write_text("MINE=1\n")

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(TopoAdvisorError, match="changed meanwhile"):
        target.write(path, "B=1\n", before=before)
    assert held(tmp_path) == {"nccl.conf": "MINE=1\n"}


def test_a_file_that_went_away_is_a_change_too(tmp_path: Path) -> None:
    with pytest.raises(TopoAdvisorError, match="changed meanwhile"):
        target.write(tmp_path / "nccl.conf", "B=1\n", before="A=1\n")
    assert held(tmp_path) == {}


@pytest.mark.parametrize("failing", [1, 2])
def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    calls = []

    def sync(handle: int) -> None:
        calls.append(handle)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(TopoAdvisorError, match="No space left") as error:
        target.write(path, "B=1\n", before="A=1\n")
    assert ("cannot be kept beside it" in error.value.message) is (failing == 1)
    assert held(tmp_path) == {"nccl.conf": "A=1\n"}


def test_a_link_to_nothing_is_said_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.symlink_to("elsewhere")
    with pytest.raises(TopoAdvisorError, match=r"it is a link to .*/elsewhere, which is not there") as error:
        target.read(path)
    assert error.value.hint


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    with pytest.raises(TopoAdvisorError, match="would have more than 256 KiB"):
        target.write(path, "A=1\n" * (64 << 10) + "B", before=None)
    assert held(tmp_path) == {}
    target.write(path, "A=1\n" * (64 << 10), before=None)
    assert target.read(path) == "A=1\n" * (64 << 10)


@given(
    st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=30),
    st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=30),
    st.sampled_from(["", "x"]),
)
def test_a_difference_is_the_one_of_diff(one: list[str], other: list[str], end: str) -> None:
    """Cut at both ends or not, `patch` must make the one file of the other."""
    before, after = "".join(one) + end, "".join(other) + end
    assert patched(before, target.difference(before, after, Path("f"))) == after


def patched(text: str, patch: str) -> str:
    old, new, at = target.lines_of(text), [], 0
    body = target.lines_of(patch)[2:]
    for line in body:
        if line.startswith("@@ "):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            assert first >= at
            new += old[at:first]
            at = first
        elif line.startswith("\\"):
            new[-1:] = [new[-1].removesuffix("\n")] if new else []
        else:
            if line[0] in " -":
                assert old[at].removesuffix("\n") == line[1:].removesuffix("\n")
                at += 1
            if line[0] in " +":
                new.append(line[1:])
    return "".join(new + old[at:])


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    changed = target.difference(None, "A=\udcff\xe9\n", Path("f"))
    assert changed.endswith("+A=\\xff\xe9\n")


def test_a_file_too_large_for_a_configuration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    with path.open("wb") as stream:
        stream.truncate(300 << 20)
    with pytest.raises(TopoAdvisorError, match="more than 256 KiB"):
        target.read(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_which_two_encodings_would_be_mixed_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "nccl.conf"
    path.write_bytes("NCCL_DEBUG=WARN\n# ours\n".encode(encoding))
    with pytest.raises(TopoAdvisorError, match="is UTF-16 text") as error:
        target.read(path)
    assert "iconv" in (error.value.hint or "")
