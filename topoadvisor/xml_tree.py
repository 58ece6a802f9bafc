"""A foreign XML document as elements with their places, bounded in depth and number."""

from __future__ import annotations

import xml.parsers.expat
from collections.abc import Iterator
from dataclasses import dataclass, field

from topoadvisor.errors import InputError

MAX_DEPTH = 64


@dataclass(slots=True)
class Element:
    """One element; `line` and `column` count from 1."""

    tag: str
    attributes: dict[str, str]
    line: int
    column: int
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The character data directly inside; empty for tags that were not asked for."""
        return "".join(self.pieces)

    def each(self, tag: str) -> Iterator[Element]:
        return (child for child in self.children if child.tag == tag)


def parse(
    text: str,
    *,
    file: str,
    hint: str,
    max_elements: int,
    doctype: str | None = None,
    texts: frozenset[str] = frozenset(),
) -> Element:
    """The root element of `text`. `texts` are the tags whose character data is kept.

    `doctype` is what the root must be called in a document type declaration; None allows none. A declaration with rules
    of its own is never allowed, so no entity can expand, and nothing is ever fetched.

    Raises InputError with line and column for broken XML, a document type that may not be, too many levels or elements.
    """
    parser = xml.parsers.expat.ParserCreate("utf-8")
    parser.buffer_text = True
    top = Element("", {}, 0, 0)
    stack = [top]
    count = 0

    def refuse(message: str) -> InputError:
        return InputError(
            message, file=file, line=parser.CurrentLineNumber, column=parser.CurrentColumnNumber + 1, hint=hint
        )

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) > MAX_DEPTH or count > max_elements:
            raise refuse(f"this XML is deeper than {MAX_DEPTH} levels or has more than {max_elements} elements")
        element = Element(tag, attributes, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        stack[-1].children.append(element)
        stack.append(element)

    def characters(data: str) -> None:
        if stack[-1].tag in texts:
            stack[-1].pieces.append(data)

    def declared(name: str, _system: str | None, _public: str | None, own_rules: bool) -> None:
        if doctype is None:
            raise refuse("a document type stands here; this format has none")
        if own_rules or name != doctype:
            raise refuse("a document type with rules of its own stands here; this format has none")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = declared
    if texts:
        parser.CharacterDataHandler = characters
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except xml.parsers.expat.ExpatError as error:
        raise InputError(
            f"the XML is broken here: {xml.parsers.expat.ErrorString(error.code)}",
            file=file,
            line=error.lineno,
            column=error.offset + 1,
            hint=hint,
        ) from None
    return top.children[0]
