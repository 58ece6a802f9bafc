"""Child processes that behave, hang, crash, or print nonsense."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from topoadvisor.verify import child
from topoadvisor.verify.child import converse_with, environment
from topoadvisor.verify.messages import Job, Line

JOB = Job(task="look")
ANSWER = """print('{"look":{"cupy":"14.2.0"}}', flush=True)"""


def talk(script: str, *, deadline_s: float = 20, waited_for: bool = True) -> tuple[str, str, list[Line]]:
    heard: list[Line] = []

    def hear(line: Line) -> bool:
        heard.append(line)
        return waited_for

    end = converse_with([sys.executable, "-c", script], os.environ)(JOB, deadline_s, hear)
    return end.how, end.detail, heard


def gone(pid: int) -> bool:
    """Whether a process has ended, within a moment."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_answers_are_heard_and_the_job_is_read() -> None:
    script = 'import sys, json; print(json.dumps({"look": {"cupy": json.load(sys.stdin)["task"]}}))'
    how, detail, heard = talk(script)
    assert (how, detail) == ("finished", "")
    assert [line.look.cupy for line in heard if line.look] == ["look"]


def test_a_hung_child_and_what_it_started_are_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
import os, subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{other.pid}}")
{ANSWER}
time.sleep(600)
"""
    started = time.monotonic()
    how, detail, heard = talk(script, deadline_s=2)
    assert how == "timeout"
    assert "2 s" in detail
    assert len(heard) == 1
    assert time.monotonic() - started < 15
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_each_answer_starts_the_deadline_anew() -> None:
    how, _, heard = talk(f"import time\nfor _ in range(4):\n    {ANSWER}\n    time.sleep(0.7)", deadline_s=2)
    assert (how, len(heard)) == ("finished", 4)


def test_nonsense_does_not_start_the_deadline_anew() -> None:
    script = "import time\nwhile True:\n    print('still here', flush=True)\n    time.sleep(0.05)"
    assert talk(script, deadline_s=1.5)[0] == "timeout"


def test_an_answer_that_nobody_waits_for_does_not_start_the_deadline_anew() -> None:
    script = 'import time\nwhile True:\n    print(\'{"begin":"step"}\', flush=True)\n    time.sleep(0.05)'
    how, _, heard = talk(script, deadline_s=1.5, waited_for=False)
    assert how == "timeout"
    assert heard


def test_texts_come_without_what_steers_a_terminal_and_not_longer_than_a_line() -> None:
    steering = "\x1b[31mred\x1b[0m \x1b]0;title\x07two\nlines\0\u202e end"
    said = {"look": {"missing": steering, "cupy": "x" * 9000, "addresses": ["\x1b[2J0"]}}
    script = f"import json; print(json.dumps({said!r}))"
    look = talk(script)[2][0].look
    assert look is not None
    assert look.missing == "red two lines end"
    assert look.cupy is not None
    assert len(look.cupy) == 600
    assert look.addresses == ["0"]
    complaint = talk("import sys; sys.exit('\\x1b[31mthe driver\\x07 is\\x1b[0m gone' + 'x' * 3000)")[1]
    assert complaint.startswith("exit code 1: the driver is gonexxx")
    assert len(complaint) < 700


def test_a_child_that_answers_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_MOST_ANSWERS", 100)
    how, detail, heard = talk(f"while True:\n    {ANSWER}", deadline_s=5)
    assert (how, detail) == ("crashed", "it did not stop after 100 answers")
    assert len(heard) == 101


def test_the_first_nonsense_is_quoted() -> None:
    detail = talk("print('one'); print('two'); import sys; sys.exit(3)")[1]
    assert detail == "exit code 3, after saying 'one'"


def test_a_crash_is_named_by_its_signal() -> None:
    how, detail, heard = talk(f"import os, signal\n{ANSWER}\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert how == "crashed"
    assert "SIGSEGV" in detail
    assert len(heard) == 1


def test_the_last_complaint_is_kept() -> None:
    how, detail, _ = talk("import sys; print('x' * 9000, file=sys.stderr); sys.exit('the driver is gone')")
    assert how == "crashed"
    assert detail == "exit code 1: the driver is gone"


@pytest.mark.parametrize(
    "output",
    [
        "Segmentation what",
        "{}}",
        '{"look": 5}',
        "\\xff\\xfe",
        '{"measured": {"name": "step", "outcome": "sideways"}}',
        "[" * 5000,
    ],
)
def test_nonsense_is_a_crash_and_never_an_error_here(output: str) -> None:
    how, detail, heard = talk(f"import sys; sys.stdout.buffer.write(b'{output}\\n')")
    assert how == "crashed"
    assert "after saying" in detail
    assert heard == []


def test_a_child_that_does_not_read_its_job_is_no_problem() -> None:
    assert talk("import os; os.close(0)")[0] == "finished"
    large = Job(task="measure", cpus={"0000:01:00.0": list(range(200_000))})
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert converse_with(argv, os.environ)(large, 1, lambda line: True).how == "timeout"


def test_the_child_ends_with_us(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    script = f"import os, time\nopen({str(pids)!r}, 'w').write(str(os.getpid()))\n{ANSWER}\ntime.sleep(600)"

    def interrupt(line: Line) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converse_with([sys.executable, "-c", script], os.environ)(JOB, 60, interrupt)
    assert gone(int(pids.read_text()))


def test_the_measuring_child_can_import_us_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    argv = [sys.executable, "-P", "-c", "import json, topoadvisor.verify.messages as m; print('{\"look\":{}}')"]
    environ = environment(os.environ)
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    here = Path.cwd()
    heard: list[Line] = []
    try:
        os.chdir(tmp_path)
        end = converse_with(argv, environ)(JOB, 20, lambda line: bool(heard.append(line)))
    finally:
        os.chdir(here)
    assert (end.how, len(heard)) == ("finished", 1)
