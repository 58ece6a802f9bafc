"""Comments that silence findings: `# topoadvisor: ignore[ENV112] the reason`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from topoadvisor.lint.codes import CODES, silences

_COMMENT: Final = re.compile(r"#\s*topoadvisor:\s*ignore(?:\[([^\]\n]*)\])?:?[ \t]*(.*)$")


@dataclass(frozen=True)
class Ignore:
    """One such comment."""

    line: int
    column: int
    codes: tuple[str, ...]
    reason: str
    covers: frozenset[int]
    """Lines whose findings it silences."""

    def matches(self, line: int, statement: int, code: str) -> bool:
        """Whether it silences a finding of that code; `statement` is the line where its statement begins."""
        return bool({line, statement} & self.covers) and any(silences(each, code) for each in self.codes)


def find(lines: list[str]) -> list[Ignore]:
    """All such comments. One on a line of its own covers the next line that is no comment."""
    found = []
    for number, line in enumerate(lines, start=1):
        match = _COMMENT.search(line) if "topoadvisor:" in line else None
        if match is None:
            continue
        codes = tuple(code.strip() for code in (match[1] or "").split(",") if code.strip())
        covers = {number}
        if not line[: match.start()].strip():
            following = number + 1
            while following <= len(lines) and lines[following - 1].lstrip().startswith("#"):
                following += 1
            covers.add(following)
        found.append(Ignore(number, match.start() + 1, codes, match[2].strip(), frozenset(covers)))
    return found


def without(lines: list[str]) -> list[str]:
    """The lines without such comments."""
    return [_COMMENT.sub("", line) if "topoadvisor:" in line else line for line in lines]


def known(code: str, rules: frozenset[str]) -> bool:
    """Whether there is such a code."""
    return code in CODES or code in rules
