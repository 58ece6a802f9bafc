"""The command line: one module per verb, and the only place where an error becomes a sentence."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from topoadvisor import __version__
from topoadvisor.cli.common import has_room, readable
from topoadvisor.errors import TopoAdvisorError, memory_is_short

INTERNAL_ERROR = 70
INTERRUPTED = 130


_HINTS = {
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "This process may open too few files: `ulimit -n` raises the limit."),
    errno.ENOMEM: "`ulimit -v`, or the limit of a container or a job, may be too low.",
    errno.ENOSPC: "Make room there, or write to another place.",
    errno.EBADF: "Standard output is closed: give the program a terminal, a pipe or a file to write to.",
}
"""What to do about an error of the operating system that no part of the program has expected."""


_LEAST_ROOM = 64 << 20
"""Bytes that the smallest run needs. Where not even they are to be had, a library may fail with any error."""


_WRAP_UP_SECONDS = 10.0
"""What ending children, judging, saving and printing may take after Ctrl-C."""


class _Interrupted(Exception):
    """Ctrl-C, carried past the command-line library, which would make it exit code 1."""


class _ReaderLeft(Exception):
    """The reader of our pipe (head, less) went away; carried past the command-line library for the same reason."""


class _Verbs(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None
        except BrokenPipeError:
            raise _ReaderLeft from None


app = typer.Typer(
    name="topoadvisor",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="See the wires, choose the settings, prove it: GPU interconnect and NCCL advice for one machine.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"topoadvisor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def _register() -> None:
    from topoadvisor.cli import (
        capture,
        cost,
        diff,
        emit,
        explain,
        facts,
        hardware,
        lint,
        log,
        matrix,
        pick,
        place,
        predict,
        prove,
        render,
        rings,
        rules,
        scan,
        verify,
    )

    app.command("scan")(scan.scan)
    app.command("matrix")(matrix.matrix)
    app.command("render")(render.render)
    app.command("predict")(predict.predict)
    app.command("rings")(rings.rings)
    app.command("pick")(pick.pick)
    app.command("place")(place.place)
    app.command("cost")(cost.cost)
    app.add_typer(emit.app, name="emit")
    app.command("verify")(verify.verify)
    app.command("prove")(prove.prove)
    app.command("capture")(capture.capture)
    app.command("facts")(facts.facts)
    app.command("diff")(diff.diff)
    app.command("explain")(explain.explain)
    app.command("log")(log.log)
    app.command("lint")(lint.lint)
    app.add_typer(rules.app, name="rules")
    app.add_typer(hardware.app, name="hardware")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    with _end_on_signals():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    _open_streams()
    try:
        if not app.registered_commands:
            _register()
        app(arguments, prog_name="topoadvisor")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except TopoAdvisorError as error:
        if debug:
            raise
        complain(error.message, error.hint, error.details)
        return error.exit_code
    except _Interrupted:
        complain("interrupted")
        return INTERRUPTED
    except (_ReaderLeft, BrokenPipeError):
        # What the reader wanted it has. Keep Python quiet when it flushes at exit.
        _drop_output()
        return 0
    except OSError as error:
        if debug:
            raise
        subject = error.filename or "the output cannot be written"
        complain(f"{subject}: {error.strerror or error}", _HINTS.get(error.errno or 0))
        _drop_output()
        return 2
    except Exception as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            # Libraries that load compiled parts turn a Ctrl-C into an error of their own.
            complain("interrupted")
            return INTERRUPTED
        if debug:
            raise
        if memory_is_short(error) or not has_room(_LEAST_ROOM):
            complain("there is not enough memory", _HINTS[errno.ENOMEM])
            _drop_output()
            return 2
        if "_TOPOADVISOR_COMPLETE" in os.environ:
            complain("completion was asked for, but not by a shell")
            return 2
        complain(
            f"internal error: {type(error).__name__}: {error}",
            "This is a fault in topoadvisor. Please report it with the output of the same command with --debug.",
        )
        return INTERNAL_ERROR
    return 0


@contextlib.contextmanager
def _end_on_signals() -> Iterator[None]:
    """Ctrl-C, being told to end, or losing the terminal: children are ended and what was measured is kept.

    An impatient second Ctrl-C changes nothing about that; one that comes later ends what is still going on.
    """
    stopped = -_WRAP_UP_SECONDS

    def stop(number: int, frame: object) -> None:
        nonlocal stopped
        if time.monotonic() - stopped >= _WRAP_UP_SECONDS:
            stopped = time.monotonic()
            raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_streams() -> None:
    """Make the standard streams usable: one that was closed (`>&-`) exists, and none fails over a letter.

    A file opened later must not become standard output by taking the number of a closed one.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = getattr(sys, name)
        if stream is None:
            # Reading finds nothing, complaints vanish, and a product that has nowhere to go is an error.
            opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            stream = open(number, mode, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        if mode == "w" and isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe that cannot show an arrow gets a question mark, not an error.
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Forget what could not be written, or Python complains about it once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str, hint: str | None = None, details: Sequence[str] = ()) -> None:
    """One sentence on stderr, and below it what to try. A stderr that takes nothing changes no exit code."""
    with contextlib.suppress(OSError):
        print(f"topoadvisor: {readable(message)}", file=sys.stderr)
        for detail in details:
            print(f"  {readable(detail)}", file=sys.stderr)
        if hint:
            print(f"hint: {readable(hint)}", file=sys.stderr)
