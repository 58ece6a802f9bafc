"""`topoadvisor emit`, with advice made by hand."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from topoadvisor.advice import Advice, AdvisedSetting, NodeSummary
from topoadvisor.cli import emit
from topoadvisor.errors import NothingDetermined, TopoAdvisorError
from topoadvisor.snapshot import Gpu, NcclLibrary, Setting, Snapshot

Emit = Callable[..., tuple[str, str]]
GPU = Gpu(index=0)


def advised(*settings: AdvisedSetting, set_nothing: str | None = None) -> Advice:
    return Advice(
        node=NodeSummary(gpus="", interconnect="", host=""),
        findings=[],
        settings=list(settings),
        set_nothing=set_nothing,
        already_right=[],
        unknown=[],
        plan=None,
        sources=[],
    )


def setting(name: str, value: str | None, **changes: Any) -> AdvisedSetting:
    fields = {"action": "set" if value else "unset", "setting_class": "system", "rule": "NET001", "reason": "because"}
    return AdvisedSetting(name=name, value=value, **{**fields, **changes})


IFNAME = setting("NCCL_SOCKET_IFNAME", "=eth0")
WORKAROUND = setting("NCCL_P2P_DISABLE", "1", setting_class="workaround", rule="P2P003", remove_when="it is fixed")
REMOVED = setting("NCCL_ALGO", None, rule="ENV002", where="environment")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Emit:
    """Run `emit` on a snapshot for which `advise` returns the given advice; returns stdout and stderr."""

    def run(advice: Advice | Callable[[Snapshot], Advice], *args: str | Path, snapshot: Snapshot | None = None) -> Any:
        advising = ModuleType("topoadvisor.advise")
        answer = advice if callable(advice) else lambda snapshot: advice
        advising.advise = lambda snapshot, rule_directories: answer(snapshot)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "topoadvisor.advise", advising)
        monkeypatch.setattr(emit, "load_snapshot", lambda *_: snapshot or Snapshot(gpus=[GPU]))
        emit.app([str(arg) for arg in args], standalone_mode=False)
        return tuple(capsys.readouterr())

    return run


def test_the_block_goes_to_stdout_and_removals_to_stderr(run: Emit) -> None:
    out, err = run(advised(IFNAME, WORKAROUND, REMOVED), "nccl-conf")
    assert "\nNCCL_SOCKET_IFNAME==eth0\n" in out
    assert "\nNCCL_P2P_DISABLE=1\n" not in out
    assert err == "environment: unset NCCL_ALGO: because [ENV002]\n"


def test_include(run: Emit) -> None:
    out, _ = run(advised(IFNAME, WORKAROUND), "nccl-conf", "--include", "tuning,workaround")
    assert "\nNCCL_P2P_DISABLE=1\n" in out
    with pytest.raises(TopoAdvisorError, match="never written"):
        run(advised(IFNAME), "shell", "--include", "diagnostic")


def test_nothing_to_set_says_why(run: Emit) -> None:
    out, _ = run(advised(set_nothing="NVLink everywhere."), "nccl-conf")
    assert "No variable is set here. NVLink everywhere." in out
    assert "=" not in out


def test_write_keeps_foreign_lines_and_the_old_file(run: Emit, tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    old = b"# site\r\nNCCL_ALGO=Ring\nNCCL_SOCKET_IFNAME=eth9\n"
    path.write_bytes(old)
    out, err = run(advised(IFNAME, REMOVED), "nccl-conf", "--write", path)
    assert out == ""
    assert path.read_bytes().endswith(old)
    assert (tmp_path / "nccl.conf.topoadvisor.bak").read_bytes() == old
    lines = path.read_text().split("\n")
    for name in ("NCCL_ALGO=Ring", "NCCL_SOCKET_IFNAME=eth9"):
        assert f"{path}:{lines.index(name) + 1}: " in err
    assert "+NCCL_SOCKET_IFNAME==eth0" in err
    assert "environment: unset NCCL_ALGO" in err

    written = path.read_bytes()
    _, err = run(advised(IFNAME, REMOVED), "nccl-conf", "--write", path)
    assert f"{path} is already so" in err
    assert path.read_bytes() == written
    assert (tmp_path / "nccl.conf.topoadvisor.bak").read_bytes() == old


def test_what_was_written_is_not_taken_out_again(run: Emit, tmp_path: Path) -> None:
    """A rule that is quiet once its variable is set, and a machine that reads the file that was written."""
    path = tmp_path / "nccl.conf"

    def advise(snapshot: Snapshot) -> Advice:
        here = [item.value for item in snapshot.settings or [] if item.name == "NCCL_SOCKET_IFNAME"]
        return advised(set_nothing="it is set") if here else advised(IFNAME)

    run(advise, "nccl-conf", "--write", path, snapshot=Snapshot(gpus=[GPU], settings=[]))
    first = path.read_bytes()
    own = Setting(name="NCCL_SOCKET_IFNAME", value="=eth0", origin=str(path), line=4, managed=True)
    run(advise, "nccl-conf", "--write", path, snapshot=Snapshot(gpus=[GPU], settings=[own]))
    assert path.read_bytes() == first


def test_diff_writes_nothing(run: Emit, tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("NCCL_ALGO=Ring\n")
    out, err = run(advised(IFNAME, REMOVED), "nccl-conf", "--diff", "--write", path)
    assert out.startswith(f"--- {path}\n+++ {path}\n")
    assert "+NCCL_SOCKET_IFNAME==eth0" in out
    assert f"{path}:1: remove NCCL_ALGO=Ring by hand" in err
    assert path.read_text() == "NCCL_ALGO=Ring\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_nccl_version_decides(run: Emit) -> None:
    old = Snapshot(gpus=[GPU], nccl_libraries=[NcclLibrary(path="/l", version="2.18.5")])
    advice = advised(setting("NCCL_X", "1", nccl=">=2.21"))
    assert "\nNCCL_X=1\n" in run(advice, "nccl-conf")[0]
    assert "\nNCCL_X=1\n" not in run(advice, "nccl-conf", snapshot=old)[0]


def test_an_environment_that_wins_is_named(run: Emit, tmp_path: Path) -> None:
    snapshot = Snapshot(gpus=[GPU], settings=[Setting(name="NCCL_SOCKET_IFNAME", value="ib0", origin="environment")])
    _, err = run(advised(IFNAME), "nccl-conf", "--write", tmp_path / "c", snapshot=snapshot)
    assert "environment sets NCCL_SOCKET_IFNAME=ib0, which wins over" in err


def test_control_characters_of_a_file_do_not_reach_the_terminal(run: Emit, tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_bytes(b"NCCL_ALGO=\x1b[2J\xff\n")
    _, err = run(advised(REMOVED), "nccl-conf", "--diff", "--write", path)
    assert "\x1b" not in err
    assert "remove NCCL_ALGO=\\x1b[2J\\xff by hand" in err


def test_shell(run: Emit, tmp_path: Path) -> None:
    out, _ = run(advised(IFNAME, REMOVED), "shell")
    assert "\nexport NCCL_SOCKET_IFNAME='=eth0'\n" in out
    assert "\nunset NCCL_ALGO\n" in out
    path = tmp_path / "nccl.sh"
    path.write_text("umask 022")
    run(advised(IFNAME), "shell", "--write", path)
    assert path.read_text().startswith("umask 022\n# >>>")
    with pytest.raises(TopoAdvisorError, match="no script to compare with"):
        run(advised(IFNAME), "shell", "--diff")


def test_without_a_gpu_nothing_is_touched(run: Emit, tmp_path: Path) -> None:
    """A driver that is down for a moment must not empty the block of a machine that needs it."""
    path = tmp_path / "nccl.conf"
    for command in ("nccl-conf", "shell"):
        with pytest.raises(NothingDetermined):
            run(advised(set_nothing="?"), command, "--write", path, snapshot=Snapshot(settings=[]))
    assert not path.exists()


def test_a_dash_is_stdout(run: Emit) -> None:
    assert "NCCL_SOCKET_IFNAME==eth0" in run(advised(IFNAME), "nccl-conf", "--write", "-")[0]


@pytest.mark.parametrize(("command", "line"), [("nccl-conf", "NCCL_{}={}\n"), ("shell", "export NCCL_{}='{}'\n")])
def test_lines_of_the_file_that_the_advice_has_not_seen_are_named(
    run: Emit, tmp_path: Path, command: str, line: str
) -> None:
    """SOURCE is another machine, or a snapshot: what the file here sets is not part of it."""
    path = tmp_path / "file"
    path.write_text("".join(line.format(*pair) for pair in (("P2P_DISABLE", 1), ("SOCKET_IFNAME", "x"), ("ALGO", 2))))
    for mode in (["--diff"], [], []):
        _, err = run(advised(IFNAME, REMOVED), command, "--write", path, *mode)
        (told,) = [each for each in err.splitlines() if "leaves in force" in each]
        number = path.read_text().splitlines().index(line.format("P2P_DISABLE", 1).rstrip()) + 1
        value = line.format("P2P_DISABLE", 1).strip().removeprefix("export ")
        assert told.endswith(f"leaves in force: {value} (line {number})")


def test_lines_that_the_advice_has_seen_are_not_named(run: Emit, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("NCCL_P2P_DISABLE=1\n")
    here = [Setting(name="NCCL_P2P_DISABLE", value="1", origin=origin, line=1) for origin in (str(path), "environment")]
    for command in ("nccl-conf", "shell"):
        _, err = run(advised(), command, "--write", path, "--diff", snapshot=Snapshot(gpus=[GPU], settings=here))
        assert "leaves in force" not in err


def test_an_open_quote_in_the_managed_block_goes_with_it(run: Emit, tmp_path: Path) -> None:
    path = tmp_path / "nccl.sh"
    run(advised(IFNAME), "shell", "--write", path)
    written = path.read_text()
    path.write_text(written.replace("export NCCL", "export NCCL_X=it's\nexport NCCL"))
    run(advised(IFNAME), "shell", "--write", path)
    assert path.read_text() == written


def test_a_change_during_the_run_is_kept(run: Emit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from topoadvisor.emit import target

    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n")
    really = target.difference

    def slowly(*parts: Any) -> str:
        path.write_text("A=1\nMINE=1\n")
        return really(*parts)

    monkeypatch.setattr(target, "difference", slowly)
    with pytest.raises(TopoAdvisorError, match="changed meanwhile"):
        run(advised(IFNAME), "nccl-conf", "--write", path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["A=1\nMINE=1\n"]


def test_a_file_of_many_lines_is_no_work(run: Emit, tmp_path: Path) -> None:
    """Each line is read a few times, and the lines that stay are not compared with each other."""
    path = tmp_path / "nccl.conf"
    path.write_text("A=1\n" * (63 << 10))
    _, err = run(advised(IFNAME), "nccl-conf", "--write", path)
    change = err[: err.index(f"{path} was written")]
    assert [each for each in change.splitlines() if each.startswith(" ")] == [" A=1"] * 3
    path.write_text("A=1\n" * (64 << 10))
    with pytest.raises(TopoAdvisorError, match="would have more than 256 KiB"):
        run(advised(IFNAME), "nccl-conf", "--diff", "--write", path)
