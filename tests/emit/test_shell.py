"""Shell lines, tried in a shell."""

import subprocess
from typing import Any

import pytest

from topoadvisor.emit import blocks, shell
from topoadvisor.snapshot import Setting, Snapshot

VALUES = ["=mlx5_0,mlx5_3", "^docker0,lo", "/etc/a b/$HOME.xml", "1;2", "a#b", "*", "~", "!x", "\\n", "é"]


def environment_after(script: str, names: list[str], **before: str) -> dict[str, str | None]:
    """The variables after a POSIX shell has sourced the script; None = not set."""
    probes = "\n".join(f'printf "%s\\n" "${{{name}-<unset>}}"' for name in names)
    done = subprocess.run(
        ["sh", "-eu"],
        input=f"{script}\n{probes}\n",
        env={"PATH": "/usr/bin:/bin", **before},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.split("\n")
    return {name: None if line == "<unset>" else line for name, line in zip(names, lines, strict=False)}


@pytest.mark.parametrize("value", VALUES)
def test_a_shell_gets_the_value(make: Any, value: str) -> None:
    script = shell.render(make.advice(make.setting("NCCL_X", value)))
    assert environment_after(script, ["NCCL_X"]) == {"NCCL_X": value}


def test_a_leading_equals_sign_is_quoted_for_zsh(make: Any) -> None:
    assert "export NCCL_X='=eth0'\n" in shell.render(make.advice(make.setting("NCCL_X", "=eth0")))


def test_unset_really_unsets(make: Any) -> None:
    script = shell.render(make.advice(make.setting("NCCL_X", "1"), make.unset("NCCL_P2P_DISABLE")))
    assert environment_after(script, ["NCCL_X", "NCCL_P2P_DISABLE"], NCCL_P2P_DISABLE="1") == {
        "NCCL_X": "1",
        "NCCL_P2P_DISABLE": None,
    }


def test_classes_are_as_in_nccl_conf(make: Any) -> None:
    asked: Any = frozenset({"workaround"})
    settings = [
        make.setting("NCCL_W", "1", setting_class="workaround", remove_when="the driver is fixed"),
        make.setting("NCCL_D", "1", setting_class="diagnostic"),
    ]
    assert "export" not in shell.render(make.advice(*settings))
    script = shell.render(make.advice(*settings), asked)
    assert "# Remove it when the driver is fixed\nexport NCCL_W=1\n" in script
    assert "export NCCL_D" not in script


def test_nothing_to_set_is_said(make: Any) -> None:
    script = shell.render(make.advice(set_nothing="all is well"))
    assert "# No variable is set here. all is well\n" in script
    assert all(line.startswith("#") for line in script.splitlines())


def test_the_block_comes_last_and_wins_and_stays_one(make: Any) -> None:
    script = shell.render(make.advice(make.setting("NCCL_X", "1")))
    merged = shell.merge("export NCCL_X=2", script)
    assert merged == f"export NCCL_X=2\n{script}"
    assert environment_after(merged, ["NCCL_X"]) == {"NCCL_X": "1"}
    assert shell.merge(merged, script) == merged
    assert shell.merge(f"{script}export Y=1\n", script) == f"export Y=1\n{script}"


def test_what_the_managed_block_exports_does_not_count_as_being_in_force() -> None:
    """Otherwise the second run would find its own workaround at work, and take it out."""
    script = shell.merge(
        "export MINE=1\n", "\n".join((blocks.BEGIN, "# why", "export NCCL_P2P_DISABLE=1", blocks.END, ""))
    )
    settings = [
        Setting(name="NCCL_P2P_DISABLE", value="1", origin="environment"),
        Setting(name="MINE", value="1", origin="environment"),
    ]
    left = shell.without_own_exports(Snapshot(settings=settings), script).settings
    assert [setting.name for setting in left or []] == ["MINE"]
    other = Snapshot(settings=[Setting(name="NCCL_P2P_DISABLE", value="0", origin="environment")])
    assert shell.without_own_exports(other, script) == other


def test_what_stands_in_a_file_is_not_gone_by_unset(make: Any) -> None:
    said = "take it out of the file too"
    both = shell.render(make.advice(make.unset(where="environment and /etc/nccl.conf:3")))
    assert "# It is set in environment and /etc/nccl.conf:3: " in both
    assert said in both
    assert said in shell.render(make.advice(make.unset(where="/etc/nccl.conf:3")))
    assert said not in shell.render(make.advice(make.unset(where="environment")))
