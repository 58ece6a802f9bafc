"""NCCL_SOCKET_IFNAME, NCCL_IB_HCA and their like: names, prefixes and exclusions, as NCCL matches them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import versions

EXACT_SINCE: Final = "2.5.6"
"""First release that knows `=` (`searchExact` in `src/misc/socket.cc` and `net_ib`)."""
_RAILS_SINCE: Final = "2.30.7"
_LONGEST: Final = 63
"""Letters of a name that are kept (`struct netIf` in `src/include/utils.h`)."""
_ANY_PORT: Final = -1
_PATTERN: Final = re.compile(r"[*?\[\]{}|!;]")
"""What patterns, negations and lists of others are made of, and names of devices are not."""
_ADDRESS: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]+)?")


@dataclass(frozen=True)
class Entry:
    """One name of the list, and the port behind its colon; -1 = any port."""

    name: str
    port: int = _ANY_PORT


@dataclass(frozen=True)
class Selection:
    """What the text of such a variable selects. Without entries everything matches, so `^` alone leaves nothing."""

    exclude: bool
    exact: bool
    entries: tuple[Entry, ...]

    def picks(self, name: str, port: int = _ANY_PORT) -> bool:
        """Whether NCCL uses this device; interfaces have no port."""
        return self._matches(name, port) != self.exclude

    def _matches(self, name: str, port: int) -> bool:
        return not self.entries or any(
            (name == entry.name if self.exact else name.startswith(entry.name))
            and (port == _ANY_PORT or entry.port in (_ANY_PORT, port))
            for entry in self.entries
        )


def parse(text: str, version: str | None = None, *, most: int | None = None) -> Selection:
    """The text as `parseStringList` (`src/misc/utils.cc`) and its callers read it.

    `most` is how many names NCCL keeps: 16 interfaces, 32 RDMA devices (16 before 2.18.5). `version` is NCCL's; None =
    the newest known. Raises ValueError when it is no version.
    """
    exclude = text.startswith("^")
    rest = text.removeprefix("^")
    exact = rest.startswith("=") and (version is None or versions.at_least(version, EXACT_SINCE))
    if exact:
        rest = rest.removeprefix("=")
    any_when_empty = version is None or versions.at_least(version, _RAILS_SINCE)
    entries = tuple(_entries(rest, _ANY_PORT if any_when_empty else 0))
    return Selection(exclude, exact, entries if most is None else entries[:most])


def _entries(text: str, empty_port: int) -> Iterator[Entry]:
    for item in text.split(","):
        name, colon, rest = item.partition(":")
        if name:
            port = rest.split(":", 1)[0]
            number = atoi(port) if port else empty_port if colon else _ANY_PORT
            yield Entry(name[:_LONGEST], number)


def atoi(text: str) -> int:
    """C's atoi: blanks, a sign, digits; the rest is dropped, and a text without a number is 0."""
    rest = text.lstrip(" \t\n\v\f\r")
    sign = -1 if rest.startswith("-") else 1
    rest = rest[1:] if rest[:1] in ("+", "-") else rest
    end = next((index for index, letter in enumerate(rest) if letter not in "0123456789"), len(rest))
    return sign * min(int(rest[: min(end, 10)] or "0"), 2**31 - 1)


def surprises(text: str, version: str | None = None) -> Iterator[str]:
    """What the writer of such a text may not expect, one sentence each."""
    found = parse(text, version)
    rest = text.removeprefix("^")
    if rest.startswith("=") and not found.exact:
        yield f"this NCCL does not know = before {EXACT_SINCE} and takes it for a part of the name"
    if text.startswith("=^"):
        yield "^ counts only as the very first character; behind = it is part of the name"
    body = rest.removeprefix("=") if found.exact else rest
    items = body.split(",")
    if any(item[:1] in ("^", "=") for item in items[1:]):
        yield "^ and = count only at the start of the whole value, for all names; here they are letters"
    if any(item != item.strip() for item in items):
        yield "NCCL trims nothing: the blanks are part of the name"
    if any(len(item.split()) > 1 for item in items):
        yield "NCCL splits the list at commas only: the blanks are part of one name"
    if (pattern := _PATTERN.search(body)) is not None:
        yield f"NCCL knows no patterns: `{pattern[0]}` is a letter of the name, and names are beginnings by themselves"
    if (address := next((item for item in items if _ADDRESS.fullmatch(item)), None)) is not None:
        yield f"{address} is an address, and the names of devices count here"
    if not found.entries:
        yield "no name is left, so it excludes every device" if found.exclude else "no name is left, so it selects all"
    behind = [item.count(":") for item in items]
    if max(behind) > 1 and version is not None and not versions.at_least(version, _RAILS_SINCE):
        yield f"rail and plane behind the port are read since {_RAILS_SINCE} only"


def hints(text: str, version: str | None = None) -> Iterator[str]:
    """What is as usual in such a text and still worth knowing."""
    found = parse(text, version)
    digit = next((entry.name for entry in found.entries if entry.name[-1:].isdigit()), None)
    if digit is not None and not found.exact:
        yield f"names are prefixes: {digit} also means {digit}0 to {digit}9; a leading = makes them exact"
