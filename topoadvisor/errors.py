"""The one family of errors that a user sees; `cli` turns each into a sentence and a hint."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence


class TopoAdvisorError(Exception):
    """Something the user can act on. `message` is one sentence, `hint` says what to try next.

    `details` are the sentences behind a message that counts several faults.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


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
        details: Sequence[str] = (),
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message, hint=hint, details=details)
        self.what = message
        self.file = file
        self.line = line
        self.column = column


class Broken(TopoAdvisorError):
    """What was to be measured does not work at all: an answer about the machine, and no good one."""

    exit_code = 1


class Unrecognised(InputError):
    """A file or text of no kind that can be read, or without anything in it; among others it may be passed over."""


def gpus_here(indexes: Iterable[int]) -> str:
    """The hint beside a GPU number that cannot be used."""
    numbers = [str(index) for index in indexes]
    match numbers:
        case []:
            return "There is no GPU here."
        case [number]:
            return f"The only GPU here is {number}."
        case _:
            return f"The GPUs here are {', '.join(numbers)}."


_NO_ROOM = ("failed to map segment", "annot allocate memory")


def memory_is_short(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that the machine gave no more memory."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        # What the dynamic loader says about a compiled module that finds no room.
        if isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


class NothingDetermined(TopoAdvisorError):
    """Every source was asked and none of them showed a GPU."""

    exit_code = 3


class Declined(TopoAdvisorError):
    """Nothing is wrong, and the answer is that nothing should be written."""

    exit_code = 1
