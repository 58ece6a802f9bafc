"""Python that sets `os.environ`, by its syntax tree."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final, Literal

from topoadvisor.lint.model import Assignment, Contents, Unreadable, watched
from topoadvisor.lint.pieces import Piece

_ENVIRONMENT: Final = re.compile(r"(?i)environ|env(_?vars?)?$|^env|_env_?")
_KEYWORDS: Final = frozenset(
    {"env", "env_vars", "environment", "environment_variables", "envs", "environ", "extra_env"}
)
_QUIET: Final = frozenset(
    {"print", "str", "int", "len", "get", "getenv", "copy", "info", "warning", "debug", "join", "setdefault"}
)
_STARTS: Final = frozenset({"init_process_group", "init_distributed", "initialize_model_parallel"})
"""Calls after which PyTorch has read its variables, and NCCL may have."""
_RANK: Final = re.compile(r"(?i)(?<![a-z])(local_|node_|global_)?rank(?![a-z])|is_main_process|is_master|PROCID")
_HOST: Final = re.compile(r"(?i)hostname|gethostname|uname")


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
    reader = _Reader(piece)
    try:
        reader.block(tree.body, (), "")
    except RecursionError:
        raise Unreadable("this Python is nested too deeply") from None
    return reader.contents


class _Reader:
    def __init__(self, piece: Piece) -> None:
        self.contents = Contents(programs=1)
        self._piece = piece
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
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._target(target, node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Dict):
                if _is_environment(node.target):
                    self._dictionary(node.value, process=_is_process(node.target))
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environment(node.value):
                self._use(node.slice)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    if isinstance(target, ast.Subscript) and (name := _name(target.slice)):
                        self.contents.removed.append((self._at(target), name))

    def _target(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript) and _is_environment(target.value):
            self._set(target.slice, value, process=_is_process(target.value))
        elif isinstance(target, ast.Name) and isinstance(value, ast.Dict) and _ENVIRONMENT.search(target.id):
            self._dictionary(value)

    def _call(self, node: ast.Call) -> None:
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = function.value if isinstance(function, ast.Attribute) else None
        if called == "update" and owner is not None and _is_environment(owner):
            process = _is_process(owner)
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    self._dictionary(argument, process=process)
            for keyword in node.keywords:
                if keyword.arg and watched(keyword.arg):
                    self._add(keyword.arg, keyword, keyword.value, process=process)
        elif called == "setdefault" and owner is not None and _is_environment(owner) and len(node.args) == 2:
            self._set(node.args[0], node.args[1], fallback=True, process=_is_process(owner))
        elif called == "putenv" and len(node.args) == 2:
            self._set(node.args[0], node.args[1])
        elif called in ("getenv", "get", "pop") and node.args:
            if called == "pop":
                if (name := _name(node.args[0])) is not None:
                    self.contents.removed.append((self._at(node), name))
            elif called == "getenv" or (owner is not None and _is_environment(owner)):
                self._use(node.args[0])
        else:
            for keyword in node.keywords:
                if keyword.arg in _KEYWORDS and isinstance(keyword.value, ast.Dict):
                    self._dictionary(keyword.value, own=True)
            if called not in _QUIET:
                self._step += 1
            if called in _STARTS:
                self.contents.starts.append((self._piece.at(self._at(node)), self._branch, called))

    def _use(self, key: ast.expr) -> None:
        if (name := _name(key)) is not None:
            self.contents.uses.add(name)

    def _dictionary(self, node: ast.Dict, *, own: bool = False, process: bool = False) -> None:
        group = self._at(node) + 1 if own else 0
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(value, ast.Dict):
                self._dictionary(value, own=own)
            elif key is not None:
                self._set(key, value, group=group, process=process)

    def _set(
        self, key: ast.expr, value: ast.expr, *, fallback: bool = False, group: int = 0, process: bool = False
    ) -> None:
        name = _name(key)
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
        text, quote = _constant(value)
        if quote is not None and not process:
            text = quote = None
        at = self._at(place) + (1 if isinstance(place, ast.Constant) else 0)
        only: Literal["rank", "host"] | None = "rank" if _RANK.search(self._condition) else None
        if only is None and _HOST.search(self._condition):
            only = "host"
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
                only=only,
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


def _name(key: ast.expr) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _is_environment(node: ast.expr) -> bool:
    """`os.environ`, `environ`, and what is named like a copy of it."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(_ENVIRONMENT.search(name))


def _is_process(node: ast.expr) -> bool:
    """`os.environ` itself, not a copy."""
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) == "environ"


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
