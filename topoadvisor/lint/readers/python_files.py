"""Python that sets `os.environ`, by its syntax tree."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from typing import Final

from topoadvisor.lint.asked import asked, differs
from topoadvisor.lint.model import Assignment, Contents, Unreadable, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import embedded, python_texts, shell

_ENVIRONMENT: Final = re.compile(r"(?i)environ|env(_?vars?)?$|^env|_env_?")
_KEYWORDS: Final = frozenset(
    {"env", "env_vars", "environment", "environment_variables", "envs", "environ", "extra_env"}
)
_QUIET: Final = frozenset(
    {"print", "str", "int", "len", "get", "getenv", "copy", "info", "warning", "debug", "join", "setdefault"}
)
_COMMANDS: Final = frozenset(
    {"system", "popen", "Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
    | {"create_subprocess_shell"}
)
"""Calls whose first argument is a command."""
_NAMED: Final = re.compile(r"[A-Za-z_]\w*=")
_STARTS: Final = frozenset({"init_process_group", "init_distributed", "initialize_model_parallel"})
"""Calls after which PyTorch has read its variables, and NCCL may have."""


def read(piece: Piece) -> Contents:
    """Everything that a Python program sets. Raises Unreadable with line and column when it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(piece.body)
    except SyntaxError as error:
        raise Unreadable(f"this is no Python 3: {error.msg}", error.lineno, error.offset) from None
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable("this is no Python: it holds NUL bytes, or is nested too deeply") from None
    try:
        reader = _Reader(piece, _poured(tree))
        reader.block(tree.body, (), "")
    except RecursionError:
        raise Unreadable("this Python is nested too deeply") from None
    return reader.contents


class _Reader:
    def __init__(self, piece: Piece, poured: frozenset[str]) -> None:
        self.contents = Contents(programs=1)
        self._piece = piece
        self._poured = poured
        self._taken: set[int] = set()
        """Dictionaries that were read."""
        self._lines = [0, *(match.end() for match in re.finditer("\n", piece.body))]
        self._text = piece.body.split("\n")
        self._count = 0
        self._step = 0
        self._branch: tuple[tuple[int, int], ...] = ()
        self._condition = ""

    def block(self, body: list[ast.stmt], branch: tuple[tuple[int, int], ...], condition: str) -> None:
        """Statements that run one after the other."""
        for statement in body:
            self._branch, self._condition = branch, condition
            self._statement(statement)
            inner = condition
            if isinstance(statement, ast.If | ast.While):
                inner = f"{condition} {ast.unparse(statement.test)}"
            elif isinstance(statement, ast.Match):
                inner = f"{condition} {ast.unparse(statement.subject)}"
            self._count += 1
            number = self._count
            if isinstance(statement, ast.With | ast.AsyncWith):
                self.block(statement.body, branch, condition)
                continue
            arms: list[list[ast.stmt]] = [
                found
                for name in ("body", "orelse", "finalbody")
                if isinstance(found := getattr(statement, name, None), list)
            ]
            arms += [each.body for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
            for arm, statements in enumerate(arms):
                self.block(statements, (*branch, (number, arm)), inner)

    def _statement(self, statement: ast.stmt) -> None:
        for node in _own(statement):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        self._target(target, node.value)
                case ast.AnnAssign(value=ast.expr() as value):
                    self._target(node.target, value)
                case ast.AugAssign():
                    if isinstance(node.value, ast.Dict) and _is_environment(node.target):
                        self._dictionary(node.value, process=_is_process(node.target))
                    self._named(_name_of(node.target), node.value)
                case ast.Call():
                    self._call(node)
                case ast.Dict():
                    self._any_dictionary(node)
                case ast.BinOp(op=ast.BitOr(), right=ast.Dict() as right) if _is_environment(node.left):
                    self._dictionary(right, own=True)
                case ast.For(iter=ast.Call(func=ast.Attribute(attr="items", value=ast.Dict() as items))) if _sets_any(
                    node
                ):
                    self._dictionary(items)
                case ast.List() | ast.Tuple():
                    self._list(node)
                case ast.Subscript(ctx=ast.Load()) if _is_environment(node.value):
                    self._use(node.slice)
                case ast.Delete():
                    for target in node.targets:
                        if isinstance(target, ast.Subscript) and (name := _text(target.slice)):
                            self.contents.removed.append((self._at(target), name))

    def _target(self, target: ast.expr, value: ast.expr) -> None:
        name = _name_of(target)
        if isinstance(target, ast.Subscript) and _is_environment(target.value):
            self._set(target.slice, value, process=_is_process(target.value))
        elif isinstance(value, ast.Dict) and name and (_ENVIRONMENT.search(name) or name in self._poured):
            self._dictionary(value)
        else:
            self._named(name, value)

    def _named(self, name: str, value: ast.expr) -> None:
        """A value that has a name: a command, when the name says so."""
        if not embedded.runs(name):
            return
        texts = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        if texts is not None and (len(texts) == 1 or all(" " in (_text(each) or " ") for each in texts)):
            for each in texts:
                self._script(each)

    def _script(self, node: ast.expr) -> None:
        text = python_texts.of_text(node, self._piece, self._offset)
        if text is not None and _NAMED.search(text.body):
            self._merge(shell.read(text), node)

    def _list(self, node: ast.List | ast.Tuple) -> None:
        texts = [_text(item) or "" for item in node.elts]
        if any(map(_NAMED.search, texts)) and not _NAMED.match(texts[0]):
            self._merge(shell.read(python_texts.of_list(node.elts, self._piece, self._offset)), node)

    def _merge(self, found: Contents, node: ast.expr) -> None:
        # A text without a program sets nothing that anybody gets.
        found.assignments = [each for each in found.assignments if each.way != "plain"]
        shell.merge(self.contents, found, branch=self._branch, at=self._piece.at(self._at(node)))

    def _call(self, node: ast.Call) -> None:
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = function.value if isinstance(function, ast.Attribute) else None
        if called == "update" and owner is not None and _is_environment(owner):
            process = _is_process(owner)
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    self._dictionary(argument, process=process)
            self._keywords(node, process=process)
        elif called == "dict" and node.args and _is_environment(node.args[0]):
            self._keywords(node, group=self._at(node) + 1)
        elif called == "setdefault" and owner is not None and _is_environment(owner) and len(node.args) == 2:
            self._set(node.args[0], node.args[1], fallback=True, process=_is_process(owner))
        elif called == "putenv" and len(node.args) == 2:
            self._set(node.args[0], node.args[1])
        elif called in ("getenv", "get", "pop") and node.args:
            if called == "pop":
                if (name := _text(node.args[0])) is not None:
                    self.contents.removed.append((self._at(node), name))
            elif called == "getenv" or (owner is not None and _is_environment(owner)):
                self._use(node.args[0])
        else:
            self._other_call(node, called, owner)

    def _other_call(self, node: ast.Call, called: str, owner: ast.expr | None) -> None:
        for keyword in node.keywords:
            if keyword.arg in _KEYWORDS and isinstance(keyword.value, ast.Dict):
                self._dictionary(keyword.value, own=True)
            elif keyword.arg in _KEYWORDS and isinstance(keyword.value, ast.List | ast.Tuple):
                self._items(keyword.value)
            else:
                self._named(keyword.arg or "", keyword.value)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if "name" in given and "value" in given:
            self._set(given["name"], given["value"], group=self._at(node) + 1)
        if called in _COMMANDS and node.args:
            self._script(node.args[0])
        elif called in ("append", "extend") and owner is not None and node.args:
            self._named(_name_of(owner), node.args[0])
        if called not in _QUIET:
            self._step += 1
        if called in _STARTS:
            self.contents.starts.append((self._piece.at(self._at(node)), self._branch, called))

    def _keywords(self, node: ast.Call, *, process: bool = False, group: int = 0) -> None:
        for keyword in node.keywords:
            if keyword.arg and watched(keyword.arg):
                self._add(keyword.arg, keyword, keyword.value, process=process, group=group)

    def _items(self, node: ast.List | ast.Tuple) -> None:
        """A list of `NAME=VALUE`, which becomes an environment."""
        for item in node.elts:
            text = python_texts.of_text(item, self._piece, self._offset)
            if text is not None and _NAMED.match(text.body):
                found = shell.read(text)
                found.assignments = [replace(each, way="python") for each in found.assignments if each.way == "plain"]
                shell.merge(self.contents, found, branch=self._branch, at=self._piece.at(self._at(node)))

    def _any_dictionary(self, node: ast.Dict) -> None:
        """A dictionary that is an environment by what is in it, or that holds one."""
        if any(key is None and _is_environment(value) for key, value in zip(node.keys, node.values, strict=True)):
            self._dictionary(node, own=True)
            return
        items = {_text(key): value for key, value in zip(node.keys, node.values, strict=True) if key is not None}
        if "name" in items and "value" in items:
            self._set(items["name"], items["value"], group=self._at(node) + 1)
        for name, value in items.items():
            if name in _KEYWORDS and isinstance(value, ast.Dict):
                self._dictionary(value, own=True)
            elif name is not None:
                self._named(name, value)

    def _use(self, key: ast.expr) -> None:
        if (name := _text(key)) is not None:
            self.contents.uses.add(name)

    def _dictionary(self, node: ast.Dict, *, own: bool = False, process: bool = False) -> None:
        if id(node) in self._taken:
            return
        self._taken.add(id(node))
        group = self._at(node) + 1 if own else 0
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(value, ast.Dict):
                self._dictionary(value, own=own)
            elif key is not None:
                self._set(key, value, group=group, process=process)

    def _set(
        self, key: ast.expr, value: ast.expr, *, fallback: bool = False, group: int = 0, process: bool = False
    ) -> None:
        name = _text(key)
        if name is not None and watched(name):
            self._add(name, key, value, fallback=fallback, group=group, process=process)

    def _add(
        self,
        name: str,
        place: ast.expr | ast.keyword,
        value: ast.expr,
        *,
        fallback: bool = False,
        group: int = 0,
        process: bool = False,
    ) -> None:
        """`process`: it is the environment itself, which takes nothing but texts."""
        if (
            isinstance(value, ast.Call)
            and _name_of(value.func) in ("get", "getenv")
            and len(value.args) == 2
            and _text(value.args[0]) == name
        ):
            value, fallback = value.args[1], True
        text, quote = _constant(value)
        if quote is not None and not process:
            text = quote = None
        at = self._at(place) + (1 if isinstance(place, ast.Constant) else 0)
        computed = differs(ast.unparse(value)) if text is None and not isinstance(value, ast.IfExp) else None
        self.contents.assignments.append(
            Assignment(
                name=name,
                value=text,
                at=self._piece.at(at),
                span=self._span(value, quote is not None),
                way="python",
                fallback=fallback,
                branch=self._branch,
                step=self._step,
                group=group,
                statement=self._piece.at(at),
                only=computed or asked(self._condition),
                quote=quote,
                refused="os.environ takes texts only, and raises TypeError" if quote else "",
            )
        )

    def _at(self, node: ast.expr | ast.keyword) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _offset(self, line: int, column: int) -> int:
        # Columns of the tree count bytes.
        line = min(line, len(self._lines))
        text = self._text[line - 1]
        return self._lines[line - 1] + len(text.encode(errors="replace")[:column].decode(errors="ignore"))

    def _span(self, node: ast.expr, whole: bool) -> tuple[int, int] | None:
        if not isinstance(node, ast.Constant) or node.end_lineno != node.lineno or node.end_col_offset is None:
            return None
        start, end = self._at(node), self._offset(node.lineno, node.end_col_offset)
        written = self._piece.body[start:end]
        if whole:
            return self._piece.span(start, end)
        inner = str(node.value)
        return self._piece.span(start + 1, end - 1) if written[1:-1] == inner else None


def _own(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement without those of the statements inside of it, in the order of the text."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += [
            child
            for child in reversed(list(ast.iter_child_nodes(node)))
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Lambda)
        ]
    return found


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_environment(node: ast.expr) -> bool:
    """`os.environ`, `environ`, copies of it, and what is named like one."""
    if isinstance(node, ast.Call):
        copied = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "copy" else None
        if _name_of(node.func) == "dict" and node.args:
            copied = node.args[0]
        return copied is not None and _is_environment(copied)
    return bool(_ENVIRONMENT.search(_name_of(node)))


def _poured(tree: ast.AST) -> frozenset[str]:
    """Names of dictionaries that become part of an environment further down."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="update", value=owner)) if _is_environment(owner):
                found |= set(map(_name_of, node.args))
            case ast.Call():
                found |= {_name_of(each.value) for each in node.keywords if each.arg in _KEYWORDS}
            case ast.AugAssign(op=ast.BitOr()) if _is_environment(node.target):
                found.add(_name_of(node.value))
            case ast.BinOp(op=ast.BitOr()) if _is_environment(node.left):
                found.add(_name_of(node.right))
            case ast.Dict() if any(each is not None and _is_environment(each) for each in _unpacked(node)):
                found |= set(map(_name_of, _unpacked(node)))
            case ast.For(iter=ast.Call(func=ast.Attribute(attr="items", value=each))) if _sets_any(node):
                found.add(_name_of(each))
    return frozenset(found - {""})


def _unpacked(node: ast.Dict) -> list[ast.expr]:
    return [value for key, value in zip(node.keys, node.values, strict=True) if key is None]


def _sets_any(loop: ast.For) -> bool:
    """Whether a loop puts what it goes through into the environment."""
    return any(
        (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_environment(node.value))
        or (isinstance(node, ast.Call) and _name_of(node.func) in ("setdefault", "putenv"))
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _is_process(node: ast.expr) -> bool:
    """`os.environ` itself, not a copy."""
    return _name_of(node) == "environ"


def _constant(node: ast.expr) -> tuple[str | None, str | None]:
    """(text of a constant, how it has to be written when it is no text); None, None for anything computed."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str" and len(node.args) == 1:
        inner = _constant(node.args[0])[0]
        return inner, None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, None
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return str(node.value), f'"{int(node.value) if isinstance(node.value, bool) else node.value}"'
    return None, None
