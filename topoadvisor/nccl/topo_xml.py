"""NCCL's topology XML as a tree of elements: reading it, and writing what NCCL's own reader takes.

NCCL reads such a file with a parser of its own (`src/graph/xml.cc`), which knows less than XML: no declaration, no
entities, no tabs, one blank between attributes. Comments it skips since 2.6.4, when their first word holds no `=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from topoadvisor import xml_tree
from topoadvisor.errors import InputError
from topoadvisor.nccl import versions

SOURCE: Final = "nccl-topology-xml"
"""Name of this input as a source and as the origin of a snapshot."""

MAX_ELEMENTS: Final = 50_000

LONGEST_TEXT: Final = 254
"""Characters of a name or value that NCCL takes (`MAX_STR_LEN`); with more it refuses the whole file."""
MOST_NODES: Final = 256
"""Elements for which NCCL has room (`NCCL_TOPO_XML_MAX_NODES`); the file must leave some for what NCCL adds itself."""

HINT: Final = (
    "NCCL writes a whole one with NCCL_TOPO_DUMP_FILE=topology.xml; the file may have been cut while it was copied."
)

_ATTRIBUTES: Final = {
    "system": ("version", "name"),
    "cpu": ("numaid", "host_hash", "affinity", "arch", "vendor", "familyid", "modelid"),
    "pci": (
        *("busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"),
    ),
    "gpu": ("dev", "sm", "rank", "gdr", "mlopart"),
    "nvlink": ("target", "count", "tclass"),
    "c2c": ("bw", "count"),
    "nic": (),
    "net": (
        *("name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll", "net", "gin", "rma"),
        *("rail", "plane", "keep"),
    ),
    "pcilink": ("target",),
}
"""What NCCL 2.30.7 reads, by element (`src/graph/topo.cc`, `src/graph/xml.cc`)."""


@dataclass
class Element:
    """One element; `line` and `column` count from 1, 0 when it stands in no file."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    line: int = 0
    column: int = 0
    children: list[Element] = field(default_factory=list)
    inferred: dict[str, str] = field(default_factory=dict)
    """Attribute or kind of child → why it stands here although nobody read it."""
    missing: dict[str, str] = field(default_factory=dict)
    """Attribute or kind of child that should stand here → why it does not."""

    def each(self, tag: str) -> Iterator[Element]:
        """The children of one kind, in order."""
        return (child for child in self.children if child.tag == tag)

    def walk(self) -> Iterator[Element]:
        """The element and everything below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(text: str, *, file: str) -> Element:
    """The `<system>` of a file, No document type, so no entity can expand or fetch anything.

    Raises InputError with line and column for broken XML, a document type, another root element or another version.
    """
    root = _own(xml_tree.parse(text, file=file, hint=HINT, max_elements=MAX_ELEMENTS))
    if root.tag != "system":
        raise wrong(file, root, f"the root element is <{root.tag}>, not <system>")
    if root.attributes.get("version", "1") != "1":
        raise wrong(
            file, root, f"this is version {root.attributes['version'][:40]} of the format; NCCL reads version 1"
        )
    return root


def wrong(file: str, element: Element, message: str) -> InputError:
    """The error about one element."""
    return InputError(message, file=file, line=element.line, column=element.column, hint=HINT)


def _own(element: xml_tree.Element) -> Element:
    children = [_own(child) for child in element.children]
    return Element(element.tag, element.attributes, element.line, element.column, children)


def known(element: Element) -> dict[str, str]:
    """The attributes that NCCL reads in this element, in NCCL's order."""
    return {name: element.attributes[name] for name in _ATTRIBUTES[element.tag] if name in element.attributes}


def is_known(tag: str) -> bool:
    """NCCL reads elements of this kind; others it passes over."""
    return tag in _ATTRIBUTES


def most_children(version: str | None) -> int:
    """Elements that NCCL takes inside one (`MAX_SUBS`); of an unknown release, what those of the last years take.

    Raises ValueError when `version` is no version.
    """
    if version is None:
        return 128
    return 640 if versions.at_least(version, "2.29.7") else 128 if versions.at_least(version, "2.21.5") else 32


def writable(text: str) -> bool:
    """NCCL reads this value as it is written here: it knows no entities and stops at the first quote."""
    return len(text) <= LONGEST_TEXT and re.fullmatch(r"[ !#-%'-;=?-~]*", text) is not None


def write(root: Element, comment: Iterable[str] = ()) -> str:
    """The file, one element a line, two blanks of indent a level, as NCCL's own dump.

    `comment` lines stand in front. Raises ValueError for a value, or a comment, that NCCL would not read as it is.
    """
    head = [f"<!-- {line} -->\n" for line in comment]
    for line in head:
        if "--" in line[4:-4] or not line.isascii():
            raise ValueError(f"no comment for NCCL: {line!r}")
    return "".join([*head, *_lines(root, 0)])


def _lines(element: Element, indent: int) -> Iterator[str]:
    for value in element.attributes.values():
        if not writable(value):
            raise ValueError(f"no value for NCCL: {value!r}")
    attributes = "".join(f' {name}="{value}"' for name, value in element.attributes.items())
    opening = f"{' ' * indent}<{element.tag}{attributes}"
    if not element.children:
        yield f"{opening}/>\n"
        return
    yield f"{opening}>\n"
    for child in element.children:
        yield from _lines(child, indent + 2)
    yield f"{' ' * indent}</{element.tag}>\n"
