"""What NCCL's own XML parser takes (`src/graph/xml.cc`, every release since 2.6.4), as strictly as that reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST, MOST_ATTRIBUTES, MOST_NODES = 254, 16, 256
BELOW = {
    "system": {"cpu"},
    "cpu": {"pci", "nic"},
    "pci": {"pci", "gpu", "nic", "pcilink"},
    "gpu": {"nvlink", "c2c"},
    "nic": {"net"},
}
IN_GRAPHS = {"graphs": {"graph"}, "graph": {"channel"}, "channel": {"gpu", "net"}}


@dataclass
class Read:
    """One element as NCCL keeps it."""

    name: str
    attributes: dict[str, str]
    children: list[Read] = field(default_factory=list)


class Refused(Exception):
    """NCCL would stop with an error."""


class Stream:
    def __init__(self, text: str) -> None:
        self.data, self.place = text.encode(), 0

    def char(self) -> str:
        if self.place == len(self.data):
            raise Refused("unexpected end of file")
        self.place += 1
        return chr(self.data[self.place - 1])


def load(text: str, root: str = "system", most: int = MOST_NODES) -> Read:
    """The root element, `<system>` or `<graphs>`. Raises Refused."""
    below = {"system": BELOW, "graphs": IN_GRAPHS}[root]
    stream = Stream(text)
    top = Read("", {})
    count = 0
    stack = [top]
    while True:
        if count >= most:
            raise Refused("too many nodes")
        found = _node(stream)
        if found is None:
            if len(stack) > 1:
                raise Refused(f"unterminated {stack[-1].name}")
            (system,) = top.children
            return system
        kind, element = found
        if kind == "close":
            if stack.pop().name != element.name:
                raise Refused(f"mismatch {element.name}")
            continue
        if element.name not in below.get(stack[-1].name, {root} if len(stack) == 1 else set()):
            raise Refused(f"{element.name} inside {stack[-1].name} would be passed over")
        count += 1
        stack[-1].children.append(element)
        if kind == "open":
            stack.append(element)


def _node(stream: Stream) -> tuple[str, Read] | None:
    char = " "
    while char in " \n\r":
        if stream.place == len(stream.data):
            return None
        char = stream.char()
    if char != "<":
        raise Refused(f"expecting <, got {char!r}")
    name, _, char = _token(stream, value_allowed=False)
    if name.startswith("!--"):
        end = (name[3:] + char)[-3:]
        while end != "-->":
            end = (end + stream.char())[-3:]
        return _node(stream)
    if name == "" and char == "/":
        name, _, char = _token(stream, value_allowed=False)
        if char != ">":
            raise Refused("trailing text in a closing tag")
        return "close", Read(name, {})
    attributes: dict[str, str] = {}
    while char == " ":
        key, value, char = _token(stream, value_allowed=True)
        if key == "" or value is None or key in attributes:
            raise Refused(f"an attribute without name or value: {key!r}")
        attributes[key] = value
    if len(attributes) > MOST_ATTRIBUTES:
        raise Refused("too many attributes")
    kind = "open"
    if char == "/":
        kind = "single"
        _, _, char = _token(stream, value_allowed=False)
    if char != ">":
        raise Refused(f"expected >, got {char!r}")
    return kind, Read(name, attributes)


def _token(stream: Stream, *, value_allowed: bool) -> tuple[str, str | None, str]:
    name = ""
    while True:
        char = stream.char()
        if char == "=":
            if not value_allowed:
                raise Refused(f"unexpected value with name {name}")
            return name, *_value(stream)
        if char in " >/\n\r":
            return name, None, char
        name += char
        if len(name) >= LONGEST:
            raise Refused("name too long")


def _value(stream: Stream) -> tuple[str, str]:
    quote = stream.char()
    if quote not in "\"'":
        raise Refused("expected a quote")
    value = ""
    while (char := stream.char()) != quote:
        value += char
        if len(value) >= LONGEST:
            raise Refused("value too long")
    return value, stream.char()
