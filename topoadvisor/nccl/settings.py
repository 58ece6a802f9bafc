"""The register of variables: NCCL's own, those of its neighbours, and names that nobody reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from topoadvisor import compiled
from topoadvisor.nccl import versions

if TYPE_CHECKING:
    from topoadvisor.snapshot import Setting

NEWEST: Final = "2.32.3"
"""The newest release that the register was checked against."""

CONFIGURED: Final = "unset: the communicator's configuration decides"
"""The default of what programs can choose for each communicator."""
OLDEST: Final = "2.3.5"
"""The first release whose source is public: what is there is as old, or older."""

Parser = Literal[
    "int",
    "bool-int",
    "strict-bool",
    "factor",
    "level",
    "merge-level",
    "list",
    "ifname",
    "hca",
    "algo",
    "proto",
    "debug",
    "debug-subsys",
    "debug-levels",
    "choice",
    "choice-exact",
    "netdevs-policy",
    "cta-policy",
    "path",
    "text",
]
Class = Literal["system", "tuning", "workaround", "diagnostic"]
Kind = Literal["switch", "integer", "bytes", "choice", "level", "list", "path", "text"]
Scope = Literal["node", "job", "rank"]

HERE: Final = Path(__file__).parent


class SettingInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One variable."""

    name: str
    what: str
    """What it does, one sentence."""
    setting_class: Class = msgspec.field(name="class")
    scope: Scope
    """What it describes: the machine, the whole job, or one process."""
    source: str
    """Where reading and default were checked: an address, or words."""
    owner: str = "NCCL"
    """Who reads it."""
    since: str | None = None
    """First release that reads it; `2.3.5` stands for older ones too; None = known from the manual only."""
    removed: str | None = None
    """First release that no longer reads it; None = still read, as far as is known."""
    kind: Kind | None = msgspec.field(name="type", default=None)
    parser: Parser | None = None
    """How its text is read; None = not by NCCL."""
    equal: Literal["yes", "no"] | None = None
    """Whether all ranks must have the same value (with scope `node`: all ranks of one machine); None = not known."""
    default: str | None = None
    """In the newest release."""
    history: dict[str, str] = {}
    """Release → default from then on, oldest first; empty = it never changed."""
    configured: str | None = None
    """What the communicator's configuration holds where it decides (`CONFIGURED`) and the program asks for nothing."""
    sentinels: dict[str, str] = {}
    """Number → what it stands for."""
    values: list[str] = []
    minimum: int | None = None
    maximum: int | None = None
    bits: list[int] = []
    """Bits of NCCL's variable and of the hardware field behind it, where they cut the number."""
    replacement: str | None = None
    replaces: str | None = None
    reads: Literal["never"] | None = None
    """`never`: declared in NCCL's source and read by nothing."""
    documented: Literal["system", "debugging"] | None = None
    """Its part of NCCL's manual."""
    pitfalls: list[str] = []

    @property
    def agreement(self) -> str:
        """Whether ranks must have the same value, in words."""
        if self.equal is None:
            return "not known whether ranks may differ"
        if self.equal == "no":
            return "may differ between ranks"
        return f"must be the same on every rank{' of a machine' if self.scope == 'node' else ''}"

    def exists_in(self, version: str | None) -> bool:
        """Whether a release of NCCL reads it; None = the newest. Raises ValueError for what is no version."""
        asked = NEWEST if version is None else version
        if self.reads == "never" or self.since is None or not self.began_by(asked):
            return False
        return self.removed is None or not versions.at_least(asked, self.removed)

    def began_by(self, version: str) -> bool:
        """Whether a release is not older than the first one that reads it."""
        return self.since in (None, OLDEST) or versions.at_least(version, self.since or OLDEST)

    def default_in(self, version: str | None) -> str | None:
        """The default in one release as the source spells it, sentinels included; None = the newest release.

        None when it is not known, or when that release does not read the variable. Raises ValueError for what is no
        version.
        """
        if version is None or not self.history:
            return self.default if self.exists_in(version) else None
        if not self.exists_in(version):
            return None
        reached = [text for since, text in self.history.items() if versions.at_least(version, since)]
        return reached[-1] if reached else None


class Invention(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A name that people set and no release reads."""

    name: str
    instead: list[str]
    """Variables that were probably meant; may be empty."""
    why: str
    spelling: bool = False
    """Only the spelling is wrong: the value means the same under the first of the real names."""


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that begin alike and belong to somebody other than NCCL."""

    name: str
    """How they begin."""
    owner: str
    what: str
    source: str


@cache
def registry() -> dict[str, SettingInfo]:
    """Every variable that core NCCL reads or once read, by name."""
    return {info.name: info for info in compiled.read(HERE / "settings.yaml", list[SettingInfo], entries)}


@cache
def neighbours() -> dict[str, SettingInfo]:
    """Variables of frameworks, plugins and other libraries that touch the interconnect, by name."""
    return {info.name: info for info in compiled.read(HERE / "neighbours.yaml", list[SettingInfo], entries)}


@cache
def inventions() -> dict[str, Invention]:
    """Names in wide circulation that nobody reads."""
    return {each.name: each for each in compiled.read(HERE / "inventions.yaml", list[Invention], entries)}


@cache
def families() -> dict[str, Family]:
    """Whose names begin how, by the beginning."""
    return {each.name: each for each in compiled.read(HERE / "families.yaml", list[Family], entries)}


def family(name: str) -> Family | None:
    """Whose name it is by how it begins, for a name that the register does not hold; None = perhaps NCCL's."""
    fitting = [beginning for beginning in families() if name.startswith(beginning)]
    return families()[max(fitting, key=len)] if fitting else None


def find(name: str) -> SettingInfo | None:
    """The variable of this name, NCCL's or a neighbour's."""
    return registry().get(name) or neighbours().get(name)


def in_force(settings: Sequence[Setting]) -> list[Setting]:
    """NCCL's variables by name, of each the setting that wins."""
    first: dict[str, Setting] = {}
    for setting in settings:
        if setting.name in registry():
            first.setdefault(setting.name, setting)
    return [first[name] for name in sorted(first)]


def entries(path: Path) -> list[list[dict[str, Any]]]:
    """Each variable, or name, of one file."""
    import yaml

    # Without types 2.10 stays a version; the numbers are turned into numbers here.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    rows = yaml.load(path.read_bytes(), Loader=loader)
    return [[{"name": name, **{key: _typed(key, value) for key, value in row.items()}}] for name, row in rows.items()]


def _typed(key: str, value: Any) -> Any:
    if key in ("minimum", "maximum"):
        return int(value)
    if key == "spelling":
        return value == "true"
    return [int(item) for item in value] if key == "bits" else value
