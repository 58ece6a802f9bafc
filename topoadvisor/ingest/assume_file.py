"""Facts that the user supplies in a YAML file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from topoadvisor.errors import InputError
from topoadvisor.files import wide_encoding
from topoadvisor.ingest import told

MAX_FILE: Final = 1 << 20
MAX_FACTS: Final = 10_000
MAX_DEPTH: Final = 16

_HINT: Final = "Write one `fact: value` a line, for example `cpu.vendor: AMD`."


def read(file: Path) -> Iterator[tuple[str, Any, int]]:
    """(fact, value, line) of each; `-` is standard input.

    Raises InputError with line and column for what is no mapping of facts.
    """
    data = _read(file)
    if len(data) > MAX_FILE:
        raise InputError(
            f"this file has more than {MAX_FILE >> 20} MiB, too much for a mapping of facts", file=str(file), hint=_HINT
        )
    if b"\0" in data:
        wide = wide_encoding(data)
        what = f"this is {wide.upper()} text, not UTF-8" if wide else "this is no text: it holds NUL bytes"
        raise InputError(what, file=str(file), hint="Save it as UTF-8." if wide else _HINT)
    try:
        node = yaml.compose(data.decode("utf-8-sig"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or _problem(error)
        raise InputError(
            f"this is no YAML: {problem}",
            file=str(file),
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
            hint=_HINT,
        ) from None
    if node is None:
        return
    for count, entry in enumerate(_flatten(node, "", str(file), 0, set())):
        if count >= MAX_FACTS:
            raise InputError(f"this file has more than {MAX_FACTS} facts", file=str(file), hint=_HINT)
        yield entry


def _problem(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1} is 0x{error.object[error.start]:02x})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _read(file: Path) -> bytes:
    if file.is_fifo() and Path(os.path.realpath(file)).exists():
        # Pipes of a shell's <(…) have no name of their own; opening one that has waits for somebody to write.
        raise InputError("this is a named pipe, which is not read", file=str(file), hint="Hand its text over with -.")
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_FILE + 1)
        with file.open("rb") as stream:
            return stream.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot be read: {reason}", file=str(file), hint="--assume-file takes a YAML mapping."
        ) from None


def _flatten(node: yaml.Node, prefix: str, file: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any, int]]:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1

    def wrong(message: str) -> InputError:
        return InputError(message, file=file, line=line, column=column, hint=_HINT)

    if isinstance(node, yaml.CollectionNode):
        if id(node) in seen:  # mappings that name each other could be walked for ever
            raise wrong("aliases are not taken here")
        seen.add(id(node))
    if isinstance(node, yaml.MappingNode) and depth < MAX_DEPTH:
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or not told.NAME.fullmatch(prefix + key.value):
                line, column = key.start_mark.line + 1, key.start_mark.column + 1
                shown = repr(key.value[:60]) if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                raise wrong(f"{shown} is no name of a fact")
            last = isinstance(value, yaml.ScalarNode | yaml.SequenceNode)
            yield from _flatten(value, f"{prefix}{key.value}{'' if last else '.'}", file, depth + 1, seen)
    elif not prefix or isinstance(node, yaml.MappingNode):
        raise wrong("this is no mapping of facts")
    elif isinstance(node, yaml.SequenceNode):
        if not all(isinstance(item, yaml.ScalarNode) for item in node.value):
            raise wrong(f"{prefix} is a list of something other than single values")
        yield prefix, [item.value for item in node.value], line
    elif isinstance(node, yaml.ScalarNode):
        value = "" if node.tag == "tag:yaml.org,2002:null" else node.value
        if not value.strip() and not told.may_be_empty(prefix):
            raise wrong(f"{prefix} has no value")
        yield prefix, value, line
