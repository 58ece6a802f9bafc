"""Files of NAME=VALUE lines: `nccl.conf`, `.env`, `.deepspeed_env`, and the environment itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from topoadvisor.lint.document import Severity
from topoadvisor.lint.model import Assignment, Contents, Remark, Repair, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.nccl import conf

_MEANT: Final = re.compile(r"(?P<before>\s*(?:export\s+)?)(?P<name>[A-Za-z_]\w*)\s*", re.A)
_ENV_LINE: Final = re.compile(
    r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)(?P<equals>[ \t]*=[ \t]*)(?P<value>.*)", re.A
)
_SETENV: Final = re.compile(
    r"^(?!\s*--)[^\n]*?\b(?:setenv|pushenv)\s*[({]\s*[\"'](?P<name>[A-Za-z_]\w*)[\"']\s*,\s*"
    r"(?:(?P<quote>[\"'])(?P<value>[^\"'\\\n]*)(?P=quote)\s*[)}]|)",
    re.M | re.A,
)
_SECTION: Final = re.compile(r"\s*\[[^\]]+\]\s*")
_COMMENT_BEHIND: Final = re.compile(r"\s+#.*$")


def nccl_conf(piece: Piece, *, version: str | None = None, expanded: bool = False) -> Contents:
    """`nccl.conf`, as NCCL reads it. `expanded`: a shell replaces variables before the text becomes the file."""
    contents = Contents()
    starts = [0, *(match.end() for match in re.finditer("\n", piece.body))]
    defined = set()
    for line in conf.parse(piece.body, version):
        defined.add(line.line)
        meant = _MEANT.fullmatch(line.name)
        if meant is None or line.name.startswith("#") or not watched(meant["name"]):
            continue
        start = starts[line.line - 1]
        at = start + meant.start("name")
        value_start = start + len(line.name) + 1
        text, span = _meant(line.value.removesuffix("\r"), value_start)
        unknown = expanded and ("$" in text or "`" in text)
        surprises = line.surprises[:-1] if line.first is not None else line.surprises
        surprises = tuple(each for each in surprises if "CR LF" not in each)
        if expanded:
            surprises = tuple(each for each in surprises if not each.startswith("NCCL expands nothing"))
        end = start + len(piece.body[start:].split("\n", 1)[0])
        contents.assignments.append(
            Assignment(
                name=meant["name"],
                value=None if unknown else text,
                at=piece.at(at),
                span=piece.span(*span),
                way="conf",
                surprises=surprises,
                statement=piece.at(start),
                whole=piece.span(start, end),
            )
        )
    _line_ends(piece, version, contents)
    for number, start in enumerate(starts, start=1):
        line_text = piece.body[start:].split("\n", 1)[0].rstrip("\r")
        if number not in defined and line_text.strip() and not line_text.lstrip().startswith("#"):
            name = re.search(r"[A-Za-z_]\w*", line_text)
            if _SECTION.fullmatch(line_text):
                message = (
                    f"nccl.conf has no sections: NCCL skips {line_text.strip()}, and the lines below count as all do"
                )
                contents.remarks.append(Remark("ENV122", piece.at(start), message))
            elif "=" not in line_text and name is not None and watched(name[0]):
                message = "a line without `=` sets nothing, and NCCL says nothing about it: write NAME=VALUE"
                contents.remarks.append(Remark("ENV122", piece.at(start + name.start()), message, name[0]))
    return contents


def _line_ends(piece: Piece, version: str | None, contents: Contents) -> None:
    """Lines that end in CR LF, all told at once."""
    ends = [match.start() for match in re.finditer("\r(?=\n|\\Z)", piece.body)]
    surprises = [each for line in conf.parse(piece.body, version) for each in line.surprises if "CR LF" in each]
    if surprises and ends and (version is None or "before" not in surprises[0]):
        edits = tuple(((piece.at(end), piece.at(end) + 1), "") for end in ends)
        severity: Severity = "warning" if "before" in surprises[0] else "error"
        message = f"{surprises[0]} (so do {len(ends)} lines)" if len(ends) > 1 else surprises[0]
        repair = Repair("end the lines in LF", edits)
        contents.remarks.append(Remark("ENV121", piece.at(ends[0]), message, severity=severity, repair=repair))


def _meant(value: str, start: int) -> tuple[str, tuple[int, int]]:
    """What the writer of a value means, without quotes, blanks and comments, and where that stands."""
    bare = _COMMENT_BEHIND.sub("", value)
    end = start + len(bare.rstrip())
    begin = start + len(bare) - len(bare.lstrip())
    text = bare.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1], (begin + 1, end - 1)
    return text, (begin, max(begin, end))


def env_file(piece: Piece, *, expanded: bool = False) -> Contents:
    """`.env` and its like: quotes and a leading `export` do not count, `$` is expanded by some readers."""
    contents = Contents()
    for start, text in _lines(piece):
        match = _ENV_LINE.fullmatch(text)
        if match is None or not watched(match["name"]):
            continue
        value, span = _meant(match["value"], start + match.start("value"))
        at = start + match.start("name")
        if match["equals"] != "=" and match["value"]:
            contents.remarks.append(_blanks(piece, match, start))
        contents.assignments.append(
            Assignment(
                name=match["name"],
                value=None if "$" in value or "{{" in value or (expanded and "`" in value) else value,
                at=piece.at(at),
                span=piece.span(*span),
                way="file",
                statement=piece.at(start),
            )
        )
    return contents


def _blanks(piece: Piece, match: re.Match[str], start: int) -> Remark:
    span = piece.span(start + match.start("equals"), start + match.end("equals"))
    return Remark(
        "ENV122",
        piece.at(start + match.start("name")),
        "some readers take the blanks around `=`, such as python-dotenv; a shell and `docker run --env-file` do not",
        match["name"],
        repair=Repair("take out the blanks", ((span, "="),)) if span is not None else None,
    )


def lua(piece: Piece) -> Contents:
    """Module files of Lmod: `setenv("NAME", "VALUE")`."""
    contents = Contents()
    for match in _SETENV.finditer(piece.body):
        known = match["value"] is not None
        if watched(match["name"]):
            contents.assignments.append(
                Assignment(
                    name=match["name"],
                    value=match["value"],
                    at=piece.at(match.start("name")),
                    span=piece.span(*match.span("value")) if known else None,
                    way="export",
                    statement=piece.at(match.start()),
                )
            )
    return contents


def deepspeed_env(piece: Piece) -> Contents:
    """`.deepspeed_env`: the launcher splits every line at its first `=`, and knows no comments."""
    contents = env_file(piece)
    for start, text in _lines(piece):
        if "=" not in text and (text.strip() or start < len(piece.body)):
            message = "DeepSpeed splits every line at `=`, and its launcher ends with an error at a line without one"
            contents.remarks.append(Remark("ENV122", piece.at(start), message, severity="error"))
        elif text.lstrip().startswith("#"):
            message = "DeepSpeed knows no comments, and exports this line as if it were a variable"
            contents.remarks.append(Remark("ENV122", piece.at(start), message, severity="error"))
    return contents


def environment(piece: Piece) -> Contents:
    """The environment of this process, one variable to a line, taken literally."""
    contents = Contents()
    for start, text in _lines(piece):
        name, equals, value = text.partition("=")
        if equals and watched(name):
            span = (start + len(name) + 1, start + len(text))
            contents.assignments.append(
                Assignment(name=name, value=value, at=piece.at(start), span=piece.span(*span), way="process")
            )
    return contents


def _lines(piece: Piece) -> Iterator[tuple[int, str]]:
    start = 0
    for line in piece.body.split("\n"):
        yield start, line.rstrip("\r")
        start += len(line) + 1
