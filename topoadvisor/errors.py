"""The one family of errors that a user sees; `cli` turns each into a sentence and a hint."""

from __future__ import annotations


class TopoAdvisorError(Exception):
    """Something the user can act on. `message` is one sentence, `hint` says what to try next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(TopoAdvisorError):
    """A file or text that cannot be used; names the file, the line and the column where it is known."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.file = file
        self.line = line
        self.column = column


class Unrecognised(InputError):
    """A file or text of no kind that can be read, or without anything in it; among others it may be passed over."""


class NothingDetermined(TopoAdvisorError):
    """Every source was asked and none of them showed a GPU."""

    exit_code = 3
