"""Tables that people write in YAML and the program reads from JSON beside it, in a twentieth of the time.

The YAML is the source. `X.json` holds the entries of `X.yaml`, one to a line, each with the checksum of its text there:
where the two differ, the YAML is read. `docs/build.py` writes the JSON and `make check` finds what it left behind.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

Entries: TypeAlias = Callable[[Path], Sequence[Any]]
"""A YAML file → the entries at its top, each as a document of its own: `[x]` of a list, `{key: x}` of a mapping."""

_T = TypeVar("_T")
_ENTRY: Final = re.compile(rb"^(?=[^\s#])", re.MULTILINE)


def entries(path: Path) -> list[Any]:
    """The entries of a YAML file as they stand there. Raises OSError and yaml.YAMLError."""
    import yaml

    table = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return [{key: value} for key, value in table.items()] if isinstance(table, dict) else [[each] for each in table]


def read(path: Path, kind: type[_T], entries: Entries = entries) -> _T:
    """A table by its YAML file; `entries` reads that. Raises msgspec.ValidationError for what is no `kind`."""
    found = load(path, kind)
    return found if found is not None else msgspec.json.decode(_joined(map(_encoded, entries(path))), type=kind)


def load(path: Path, kind: type[_T]) -> _T | None:
    """What stands in the JSON beside a YAML file; None when that is not there, or is not of this text or `kind`."""
    try:
        lines = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=list[tuple[int, msgspec.Raw]])
        if [checksum for checksum, _ in lines] != _checksums(path):
            return None
        return msgspec.json.decode(_joined(bytes(entry) for _, entry in lines), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def compile_table(path: Path, entries: Entries = entries) -> str:
    """The JSON that belongs beside a YAML file. Raises ValueError for a file whose entries do not each begin a line."""
    pairs = zip(_checksums(path), map(_encoded, entries(path)), strict=True)
    return "[\n" + ",\n".join(f"[{checksum},{entry.decode()}]" for checksum, entry in pairs) + "\n]\n"


def _encoded(entry: Any) -> bytes:
    return msgspec.json.encode(entry)


def _joined(documents: Iterable[bytes]) -> bytes:
    """One document of many: lists behind each other, or mappings."""
    first, *others = documents
    return first[:-1] + b"".join(b"," + other[1:-1] for other in others) + first[-1:]


def _checksums(path: Path) -> list[int]:
    """CRC-32 of each entry's text: from its line to that of the next, comments included."""
    return [zlib.crc32(entry) for entry in _ENTRY.split(path.read_bytes())[1:]]
