"""YAML and JSON: Kubernetes, Compose, Slurm-less launchers, configurations of frameworks.

No schema of any of them is needed: a key that is the name of a variable sets it, and so do `name:` with `value:`, an
item `NAME=VALUE`, and what scripts inside of texts do. Templates (`{{ … }}`) stand for values that are not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from topoadvisor.lint.model import Assignment, Contents, Remark, Unreadable, Way, watched
from topoadvisor.lint.pieces import Piece

_UNKNOWN: Final = "\ue000"
"""Stands for every letter of a template."""
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.S)
_ONLY_TEMPLATE: Final = re.compile(r"^[ \t]*(\{\{(?:(?!\}\}).)*\}\}|\{%(?:(?!%\}).)*%\})[ \t]*$", re.M | re.S)
"""Templates on lines of their own: conditions, loops, and what is put there as a whole."""
_ITEM: Final = re.compile(r"[A-Za-z_]\w*=.*", re.A | re.S)
_BLANK: Final = re.compile(r"([A-Za-z_]\w*)[ \t]+=.*", re.A)
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)|\$\{?([A-Za-z_]\w*)")
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*):?-([^${}]*)\}", re.A)
"""Compose, and other readers of YAML than Kubernetes, take the default where the variable is not set."""
_SERVICES: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "LeaderWorkerSet", "ConfigMap"})
_STAYS: Final = frozenset({"InferenceService", "RayService", "Service", "KServe", "SeldonDeployment"})
_REPLICAS: Final = re.compile(r"\w+ReplicaSpecs")
_ENVIRONMENT: Final = re.compile(r"(?i).*env(s|iron|ironments?|(ironment)?_?var(iable)?s?)?|data|stringData")
"""Keys of what becomes the environment of a program; elsewhere a name in small letters is the file's own."""
_DEEPEST: Final = 60


@dataclass(frozen=True)
class _Around:
    """What stands around a node."""

    keys: tuple[str, ...] = ()
    way: Way = "container"
    kubernetes: bool = False
    role: str | None = None
    group: int = 0
    words: tuple[str, ...] = ()
    """The other items of a list, without folders: a command may be one."""


def read(piece: Piece, *, depth: int = 0, json: bool = False) -> Contents:
    """Everything that a YAML or JSON text sets. Raises Unreadable with line and column when it is neither."""
    piece, templated = _masked(piece)
    body = piece.body
    contents = Contents()
    try:
        documents = list(yaml.compose_all(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or "it is nested too deeply, or holds letters that YAML forbids")
        what = "JSON" if json else "YAML"
        raise Unreadable(
            f"this is no {what}: {problem}",
            mark.line + 1 if mark else None,
            mark.column + 1 if mark else None,
            templates=templated,
        ) from None
    walker = _Walker(piece, body, templated, contents, depth)
    for document in documents:
        if document is not None:
            walker.walk(document, _around(document), 0)
    return contents


def _masked(piece: Piece) -> tuple[Piece, bool]:
    """The piece with templates made into YAML, and whether there were any."""
    # Tabs are no blanks for YAML, but for JSON, and editors write them.
    text = re.sub(r"(?m)^[ ]*\t+[ \t]*", lambda match: " " * len(match[0]), piece.body)
    piece = piece.written(text)
    if "{{" not in text and "{%" not in text:
        return piece, False
    # Blanks in the place of a line would count as the indentation of a block: the line has to be empty.
    piece = piece.without([match.span() for match in _ONLY_TEMPLATE.finditer(text)])
    inline = _TEMPLATE.sub(lambda match: re.sub(r"[^\n]", _UNKNOWN, match[0]), piece.body)
    return piece.written(inline), True


def _around(document: yaml.Node) -> _Around:
    top = _scalars(document)
    kind = top.get("kind", "")
    if "apiVersion" in top and kind:
        stays = kind in _SERVICES or kind in _STAYS
        return _Around(way="service" if stays else "container", kubernetes=True)
    compose = isinstance(document, yaml.MappingNode) and any(
        isinstance(key, yaml.ScalarNode) and key.value == "services" for key, _ in document.value
    )
    return _Around(way="service" if compose else "container")


def _scalars(node: yaml.Node) -> dict[str, str]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {
        str(key.value): str(value.value)
        for key, value in node.value
        if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
    }


class _Walker:
    def __init__(self, piece: Piece, body: str, templated: bool, contents: Contents, depth: int) -> None:
        self._piece = piece
        self._body = body
        self._templated = templated
        self._contents = contents
        self._depth = depth
        self._seen: set[int] = set()
        self._step = 0

    def walk(self, node: yaml.Node, around: _Around, depth: int) -> None:
        # Anchors are one node in several places.
        if depth > _DEEPEST or (id(node) in self._seen and not isinstance(node, yaml.ScalarNode)):
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._mapping(node, around, depth)
        elif isinstance(node, yaml.SequenceNode):
            self._sequence(node, around, depth)
        elif isinstance(node, yaml.ScalarNode):
            self._scalar(node, around)

    def _mapping(self, node: yaml.MappingNode, around: _Around, depth: int) -> None:
        group = node.start_mark.index + 1
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.walk(value, around, depth + 1)
                continue
            name = str(key.value)
            if _sets(name, around) and isinstance(value, yaml.ScalarNode):
                self._set(name, key, value, replace(around, group=group))
                continue
            role = around.role
            if around.keys and _REPLICAS.fullmatch(around.keys[-1]):
                role = name
                self._contents.roles.add(name)
            self.walk(value, replace(around, keys=(*around.keys, name), role=role), depth + 1)

    def _sequence(self, node: yaml.SequenceNode, around: _Around, depth: int) -> None:
        group = node.start_mark.index + 1
        inside = replace(around, group=group)
        items = list(node.value)
        words = tuple(str(item.value).rpartition("/")[2] for item in items if isinstance(item, yaml.ScalarNode))
        inside = replace(inside, words=words)
        for place, item in enumerate(items):
            if isinstance(item, yaml.MappingNode) and (pair := _pair(item)) is not None:
                name, value = pair
                if _sets(str(name.value), around):
                    if isinstance(value, yaml.ScalarNode):
                        self._set(str(name.value), name, value, inside)
                    elif value is not None:
                        self._add(str(name.value), None, name, None, inside)
                    continue
            if isinstance(item, yaml.ScalarNode):
                self._item(item, items[place - 1] if place else None, inside)
                continue
            self.walk(item, around, depth + 1)

    def _item(self, item: yaml.ScalarNode, before: yaml.Node | None, around: _Around) -> None:
        text = str(item.value)
        name = text.partition("=")[0]
        # Elsewhere than in an environment an item with blanks is a sentence, or a command.
        flag = str(before.value) if isinstance(before, yaml.ScalarNode) else ""
        given = flag in ("-x", "-genv", "--env", "-e")
        blank = re.search(r"\s", text.strip()) is not None and not given and not _in_environment(around)
        if _ITEM.fullmatch(text) and _sets(name, around) and not blank and "\n" not in text:
            start, raw = self._raw(item)
            value_at = raw.find("=") + 1
            value = text[len(name) + 1 :]
            span = (start + value_at, start + value_at + len(value))
            way: Way = "launcher" if given else around.way
            self._add(
                name,
                value,
                item,
                span if self._body[slice(*span)] == value else None,
                replace(around, way=way),
                at=start + max(raw.find(name), 0),
            )
        elif (apart := _BLANK.fullmatch(text)) is not None and _sets(apart[1], around):
            message = f"the blank before = is part of the name: nobody finds {apart[1]}"
            self._contents.remarks.append(Remark("ENV122", self._piece.at(self._raw(item)[0]), message, apart[1]))
        else:
            self._scalar(item, around)

    def _set(self, name: str, key: yaml.ScalarNode, value: yaml.ScalarNode, around: _Around) -> None:
        text = str(value.value)
        start, raw = self._raw(value)
        span = (start, start + len(raw)) if raw == text else None
        kind = str(value.tag).rpartition(":")[2]
        quote = None
        if kind == "null":
            # Nothing is set here; Compose hands the variable of its own environment on.
            self._contents.uses.add(name)
            return
        kinds: tuple[str, ...] = ("bool", "int", "float") if around.kubernetes and not self._templated else ()
        if kind in kinds:
            quote = f'"{raw}"'
        refused = f"Kubernetes refuses {raw} here, which is no text without quotes" if quote else ""
        bare = kind == "str" and not value.style
        self._add(name, text, key, span, around, quote=quote, refused=refused, bare_text=bare)

    def _add(
        self,
        name: str,
        value: str | None,
        node: yaml.ScalarNode,
        span: tuple[int, int] | None,
        around: _Around,
        *,
        at: int | None = None,
        quote: str | None = None,
        refused: str = "",
        bare_text: bool = False,
    ) -> None:
        default = _DEFAULT.fullmatch(value) if value is not None and not around.kubernetes else None
        if default is not None and _UNKNOWN not in default[2]:
            self._contents.uses |= {default[1]} - {name}
            value = default[2]
            span = (span[0] + default.start(2), span[0] + default.end(2)) if span else None
        elif value is not None:
            self._contents.uses |= {each for match in _REFERENCE.findall(value) for each in match if each}
            if _UNKNOWN in value or _REFERENCE.search(value):
                value = None
        # Both branches of a template's condition are there, and only one of them comes.
        self._step += self._templated
        place = node.start_mark.index + (1 if node.style in ("'", '"') else 0) if at is None else at
        self._contents.assignments.append(
            Assignment(
                name=name,
                value=value,
                at=self._piece.at(min(place, max(len(self._body) - 1, 0))),
                span=self._piece.span(*span) if span else None,
                way=around.way,
                fallback=default is not None,
                step=self._step,
                group=around.group,
                role=around.role,
                programs=around.words,
                quote=quote,
                refused=refused,
                bare_text=bare_text and default is None,
            )
        )

    def _raw(self, node: yaml.ScalarNode) -> tuple[int, str]:
        """Where the letters of a scalar stand in the text, and they, without quotes."""
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in ("'", '"'):
            start, end = start + 1, end - 1
        return start, self._body[start:end]

    def _scalar(self, node: yaml.ScalarNode, around: _Around) -> None:
        text = str(node.value)
        self._contents.uses |= {first for first, _ in _REFERENCE.findall(text) if first}
        if self._depth or not any(word in text for word in ("NCCL_", "NVSHMEM_", "UCX_", "GLOO_", "FI_")):
            return
        piece = self._inner(node)
        if piece is None:
            return
        from topoadvisor.lint.readers import embedded, shell

        key = around.keys[-1] if around.keys else ""
        named = embedded.kind_of_name(key) if "." in key else None
        if named is not None and named not in ("yaml", "json"):
            found = embedded.read_named(key, piece, depth=1)
        elif any(embedded.runs(each) for each in around.keys[-2:]) or text.startswith("#!"):
            found = shell.read(piece, depth=1)
        else:
            return
        if found is not None:
            shell.merge(self._contents, found, at=self._piece.at(node.start_mark.index))

    def _inner(self, node: yaml.ScalarNode) -> Piece | None:
        """The text of a scalar as a piece of the file."""
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in ("|", ">"):
            begin = self._body.find("\n", start) + 1
            if not 0 < begin < end:
                return None
            piece = self._piece.cut(begin, end).written(self._body[begin:end])
            first = next((line for line in piece.body.splitlines() if line.strip()), "")
            piece = piece.dedented(len(first) - len(first.lstrip(" ")))
        else:
            start, raw = self._raw(node)
            piece = self._piece.cut(start, start + len(raw)).written(raw)
        if node.style != "|":
            piece = piece.written(piece.body.replace("\n", " "))
        # A template is a value that nobody knows: an expansion for the shell, too.
        return piece.written(re.sub(f"{_UNKNOWN}+", lambda match: "$" + "x" * (len(match[0]) - 1), piece.body))


def _sets(name: str, around: _Around) -> bool:
    """Whether a name at this place is that of a variable."""
    return watched(name) and (_in_environment(around) or not any(letter.islower() for letter in name))


def _in_environment(around: _Around) -> bool:
    return bool(around.keys) and _ENVIRONMENT.fullmatch(around.keys[-1]) is not None


def _pair(node: yaml.MappingNode) -> tuple[yaml.ScalarNode, yaml.Node | None] | None:
    """`name:` and `value:`, or `valueFrom:`, of a mapping that has little else."""
    found: dict[str, Any] = {
        str(key.value): value for key, value in node.value if isinstance(key, yaml.ScalarNode) and len(node.value) <= 3
    }
    name = found.get("name")
    if not isinstance(name, yaml.ScalarNode):
        return None
    return name, found.get("value", found.get("valueFrom"))
