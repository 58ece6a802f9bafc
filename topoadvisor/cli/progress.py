"""A progress bar on standard error while something is measured; silent when that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topoadvisor.cli.common import readable


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function of (steps done, steps in all, what runs now)."""
    if not sys.stderr.isatty():
        yield lambda done, total, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=None)

        def tell(done: int, total: int, text: str) -> None:
            shown.update(task, completed=done, total=total or None, description=readable(text))

        yield tell
