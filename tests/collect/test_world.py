import os
import signal
import sys
import time
from pathlib import Path

import pytest

from topoadvisor.collect.world import Files, Process, printable


def test_absolute_link_is_resolved_inside_the_root(tree):
    tree.file("/usr/lib/os-release", "inside\n")
    tree.link("/etc/os-release", "/usr/lib/os-release")
    assert Files(tree.root).text("/etc/os-release") == "inside"


@pytest.mark.parametrize("target", ["/secret", "../../../secret", "../secret"])
def test_no_link_leads_out_of_the_root(tree, target):
    (tree.root.parent / "secret").parent.mkdir(parents=True, exist_ok=True)
    (tree.root.parent / "secret").write_text("outside")
    tree.link("/etc/file", target)
    assert Files(tree.root).text("/etc/file") is None
    assert Files(tree.root).inside("/etc/file") == "/secret"


def test_link_in_the_middle_of_a_path_and_dots(tree):
    tree.file("/data/real/value", "7\n")
    tree.link("/a/short", "/data/./real/../real")
    files = Files(tree.root)
    assert files.number("/a/short/value") == 7
    assert files.inside("/a/short/../real/value") == "/data/real/value"


def test_loop_of_links_is_absence(tree):
    tree.link("/a", "/b")
    tree.link("/b", "/a")
    files = Files(tree.root)
    assert files.text("/a/x") is None
    assert files.names("/a") is None


def test_missing_is_no_error_and_not_numeric_is_none(tree):
    tree.file("/speed", "Unknown\n")
    files = Files(tree.root)
    assert files.text("/nothing") is None
    assert files.number("/speed") is None
    assert files.errors == []


def test_unreadable_is_noted_with_its_error_name(tree, monkeypatch):
    tree.file("/closed", "x")
    real_open = os.open

    def refuse(path, *arguments, **named):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)  # root, who may run the tests, reads everything
    files = Files(tree.root)
    assert files.text("/closed") is None
    assert [(error.subject, error.error, error.code) for error in files.errors] == [("/closed", "EACCES", 13)]
    assert files.complaint() == "could not read /closed (EACCES)"


def test_huge_file_is_cut_and_noted(tree):
    tree.file("/huge", b"y" * 300_000)
    files = Files(tree.root)
    assert len(files.data("/huge", 1000)) == 1000
    assert files.errors[0].error == "longer than 1000 bytes"


def test_pipe_and_directory_do_not_block(tree):
    tree.folder("/dir")
    os.mkfifo(tree.root / "pipe")
    files = Files(tree.root)
    started = time.monotonic()
    assert files.text("/pipe") is None
    assert files.text("/dir") is None
    assert time.monotonic() - started < 2
    assert {error.error for error in files.errors} == {"not a regular file"}


def test_endless_file_is_read_to_its_limit():
    files = Files(Path("/"))
    assert files.data("/dev/zero") is None  # a device is no regular file
    assert files.errors[0].error == "not a regular file"


def test_matching_follows_patterns_per_part(tree):
    for place in ("/opt/nccl-1/lib/x", "/opt/nccl-2/lib/x", "/opt/other/lib/x"):
        tree.file(place, "")
    assert Files(tree.root).matching("/opt/nccl*/lib") == ["/opt/nccl-1/lib", "/opt/nccl-2/lib"]


def test_printable_replaces_what_is_not_utf8():
    assert printable(os.fsdecode(b"eth\xff0")) == "eth�0"
    printable(os.fsdecode(b"\xff")).encode()


def test_process_is_killed_at_its_deadline_and_keeps_what_it_said():
    script = "import sys, time; print('first', flush=True); time.sleep(60)"
    job = Process([sys.executable, "-c", script], os.environ)
    started = time.monotonic()
    done = job.finish(1.0)
    assert time.monotonic() - started < 10
    assert done.code is None
    assert done.out == b"first\n"


def test_process_that_ended_gives_code_and_complaint():
    done = Process([sys.executable, "-c", "import sys; print('out'); sys.exit('why\\n')"], os.environ).finish(30)
    assert (done.code, done.text, done.complaint) == (1, "out\n", "why")


def test_process_ended_by_signal():
    script = "import os; os.kill(os.getpid(), 11)"
    assert Process([sys.executable, "-c", script], os.environ).finish(30).code == -signal.SIGSEGV


def test_what_a_process_said_is_fetched_even_after_the_deadline():
    """Other sources may take longer than the deadline of a process that answered long ago."""
    process = Process([sys.executable, "-c", "print('said')"], os.environ)
    time.sleep(1.0)
    done = process.finish(0.01)
    assert (done.code, done.text) == (0, "said\n")
