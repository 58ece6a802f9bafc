"""The one guarded door to NVML: each query's error is noted, nothing but reading is asked, and a slow call is named."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from topoadvisor.snapshot import LOST, CallError, Driver, Gpu, P2p, Source, Struct

IMPLAUSIBLE: Final = "ImplausibleValue"
"""Our own name for an answer that cannot be true, such as all ones."""
_VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_READING: Final = ("nvmlDeviceGet", "nvmlSystemGet")
"""What a function that only reads begins with."""
_FEATURE_ABSENT: Final = {"NotSupported", "FunctionNotFound", "AttributeError"}
"""Answers that say "this GPU, driver or pynvml has no such thing": they do not make the source incomplete."""
_SLOW_S: Final = 1.0
"""A call that takes longer is named, so that it can be blamed when it never returns."""


class Piece(Struct, frozen=True, kw_only=True):
    """One line that the worker prints; one member is set."""

    asking: str | None = None
    """The subject that is asked about next; what a hung call is blamed on."""
    count: int | None = None
    driver: Driver | None = None
    gpu: Gpu | None = None
    p2p: P2p | None = None
    error: CallError | None = None
    end: Source | None = None


Emit = Callable[[Piece], None]


@dataclass
class Door:
    """The only way to NVML: a query that fails is noted and answers None."""

    nvml: Any
    emit: Emit
    last_error: str | None = None
    """Name of the error of the latest query; None when it succeeded."""
    incomplete: list[CallError] = field(default_factory=list)
    """Errors other than "there is no such thing"."""
    lost: set[str] = field(default_factory=set)
    """GPUs that fell off the bus."""
    under_way: tuple[str, str | None, float] | None = None
    """Call, subject and start of the query that has not answered yet."""

    def ask(self, call: str, *arguments: Any, subject: str | None = None, end: Iterable[str] = ()) -> Any:
        """Call one function. Errors named in `end` are an expected answer and are not noted."""
        if not call.startswith(_READING):
            raise ValueError(f"{call} is not a function that only reads")
        return self.guard(call, lambda: getattr(self.nvml, call)(*arguments), subject, end)

    def number(
        self, call: str, *arguments: Any, subject: str, within: tuple[int, int], unset: Iterable[int] = ()
    ) -> int | None:
        """A whole number from a call. One in `unset` means "none"; another outside `within` cannot be true."""
        answer = self.ask(call, *arguments, subject=subject)
        return self.plausible(call, answer, subject, within, unset)

    def plausible(
        self, call: str, answer: Any, subject: str, within: tuple[int, int], unset: Iterable[int] = ()
    ) -> int | None:
        """The number when it can be true; None, with a note, when it cannot."""
        if answer is None or answer in unset:
            return None
        if isinstance(answer, int) and within[0] <= answer <= within[1]:
            return answer
        self.note(CallError(call=call, error=IMPLAUSIBLE, subject=subject))
        return None

    def guard(self, call: str, query: Callable[[], Any], subject: str | None = None, end: Iterable[str] = ()) -> Any:
        """Run one query. Exception, not NVMLError: ctypes, decoding and missing names raise others."""
        self.last_error = None
        nested, self.under_way = self.under_way, (call, subject, time.monotonic())
        try:
            return query()
        except Exception as error:
            name = type(error).__name__.removeprefix("NVMLError_")
            # Never str(error): for an unknown code that calls into the library again.
            code = getattr(error, "value", None)
            self.last_error = name
            if name not in end:
                self.note(
                    CallError(call=call, error=name, subject=subject, code=code if isinstance(code, int) else None)
                )
        finally:
            self.under_way = nested
        return None

    def note(self, error: CallError) -> None:
        self.emit(Piece(error=error))
        if error.error not in _FEATURE_ABSENT:
            self.incomplete.append(error)
        if error.error == LOST and error.subject:
            self.lost.add(error.subject.partition("/")[0])

    def text(self, call: str, *arguments: Any, subject: str | None = None) -> str | None:
        """A string answer, bytes or str; bytes that are not UTF-8 are replaced. None also when it is empty."""
        answer = self.ask(call, *arguments, subject=subject)
        if self.last_error == "UnicodeDecodeError":
            # pynvml decodes in a decorator; below it are the bytes (driver 555 on WSL2 had such a name).
            raw = getattr(getattr(self.nvml, call), "__wrapped__", None)
            answer = self.guard(call, lambda: raw(*arguments), subject) if raw else None
        if isinstance(answer, bytes):
            answer = answer.decode(errors="replace")
        return answer if isinstance(answer, str) and answer else None

    def fields(self, handle: Any, wanted: list[tuple[int, int]], subject: str) -> list[float | int | None]:
        """Field values for (field, link) pairs. Each entry has a return code of its own; a failed one holds 0."""

        def query() -> list[float | int | None]:
            return [_value(entry) for entry in self.nvml.nvmlDeviceGetFieldValues(handle, wanted)]

        return self.guard("nvmlDeviceGetFieldValues", query, subject) or [None] * len(wanted)


def _value(entry: Any) -> float | int | None:
    """The number of one field entry; None when that entry failed or is of a type that we do not know."""
    if entry.nvmlReturn != 0 or not 0 <= entry.valueType < len(_VALUE_MEMBERS):
        return None
    number: float | int | None = getattr(entry.value, _VALUE_MEMBERS[entry.valueType], None)
    return number if number is not None and math.isfinite(number) else None


def name_slow_calls(door: Door, stop: threading.Event) -> None:
    """Say which call has been waited for, once for each; runs beside the questions until `stop` is set."""
    named: tuple[str, str | None, float] | None = None
    while not stop.wait(_SLOW_S / 4):
        current = door.under_way
        if current is not None and current != named and time.monotonic() - current[2] > _SLOW_S:
            named = current
            door.emit(Piece(asking=f"{current[1] or 'the driver'} ({current[0]})"))


def shut_down(door: Door) -> None:
    """Shut NVML down, but wait for it no longer than for a slow call: all answers are there, and exit cleans up too."""
    thread = threading.Thread(target=door.guard, args=("nvmlShutdown", lambda: door.nvml.nvmlShutdown()), daemon=True)
    thread.start()
    thread.join(_SLOW_S)
