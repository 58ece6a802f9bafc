"""The register of NCCL's variables: what each is, how it is read, and where it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, cast, get_args

import yaml

Parser = Literal[
    "int", "bool-int", "level", "merge-level", "list", "ifname", "hca", "algo", "proto", "debug", "path", "text"
]
Class = Literal["system", "tuning", "workaround", "diagnostic"]

_FILE: Final = Path(__file__).with_name("settings.yaml")


@dataclass(frozen=True)
class SettingInfo:
    """One variable of core NCCL."""

    name: str
    since: str | None
    """First release that reads it; `2.3.5` stands for older ones too; None = known from the manual only."""
    removed: str | None
    """First release that no longer reads it; None = still read, as far as is known."""
    parser: Parser
    setting_class: Class
    what: str
    """What it does, one sentence."""


@cache
def registry() -> dict[str, SettingInfo]:
    """Every variable that core NCCL reads or once read, by name. Read once, from `settings.yaml`."""
    # The loader without types is faster, and 2.10 stays a version. Some builds of PyYAML have no C loader.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    rows = yaml.load(_FILE.read_bytes(), Loader=loader)
    return {name: _info(name, *row) for name, row in rows.items()}


def _info(name: str, life: str, parser: str, setting_class: str, what: str) -> SettingInfo:
    if parser not in get_args(Parser) or setting_class not in get_args(Class):
        raise ValueError(f"{_FILE.name}: {name}: unknown reading {parser!r} or class {setting_class!r}")
    since, _, removed = life.partition("..")
    return SettingInfo(
        name=name,
        since=None if since == "manual" else since,
        removed=removed or None,
        parser=cast(Parser, parser),
        setting_class=cast(Class, setting_class),
        what=what,
    )
