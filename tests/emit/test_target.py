"""Reading, comparing and writing the file."""

import os
import stat
from pathlib import Path

import pytest

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
    with pytest.raises(TopoAdvisorError, match="cannot be written"):
        target.write(path, "A=1\n", before=None)
    assert path.is_symlink()


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    target.write(path, "A=1\n", before=None)
    assert path.read_text() == "A=1\n"


def test_a_file_too_large_for_a_configuration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    with path.open("wb") as stream:
        stream.truncate(300 << 20)
    with pytest.raises(TopoAdvisorError, match="more than 4 MiB"):
        target.read(path)
