"""`topoadvisor emit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    GpusOption,
    RulesOption,
    SourceArgument,
    emit_text,
    file_to_write,
    gpu_indexes,
    load_snapshot,
    need_numpy,
    printable,
    read_text,
    say,
    some_path,
)
from topoadvisor.plan import Model

if TYPE_CHECKING:
    from topoadvisor.advice import Advice
    from topoadvisor.snapshot import Snapshot

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write the advised settings as configuration.")

WriteOption = Annotated[
    Path | None,
    typer.Option(
        "--write",
        metavar="PATH",
        parser=file_to_write,
        help="Put the settings into this file, in a block of their own; all other lines stay, and the file as it was "
        "is kept as PATH.topoadvisor.bak (.1, .2, … when that is taken).",
        show_default=False,
    ),
]
DiffOption = Annotated[bool, typer.Option("--diff", help="Show what --write would change, and write nothing.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        parser=file_to_write,
        help="Write to FILE; - is standard output.",
        show_default="-",
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="CLASSES",
        help="Further classes of settings: tuning, workaround, or both with a comma. Otherwise only system settings.",
        show_default=False,
    ),
]


@app.command("nccl-conf")
def nccl_conf(
    sources: SourceArgument = None,
    write: WriteOption = None,
    diff: DiffOption = False,
    include: IncludeOption = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    rules: RulesOption = None,
) -> None:
    """Write the settings as NCCL's configuration file. --diff compares with /etc/nccl.conf, or with PATH."""
    from topoadvisor.emit import nccl_conf as emitter
    from topoadvisor.emit import selection as selecting
    from topoadvisor.emit import target

    classes = selecting.parse_classes(include or [])
    snapshot, advice = _advise(load_snapshot(sources, assume, assume_file), rules)
    version = selecting.nccl_version(snapshot)
    block = emitter.render(advice, classes, version)
    selection = selecting.select(advice, classes, version, for_conf=True)
    path = _target(write)
    if path is None and diff:
        path = Path(emitter.SYSTEM_FILE)
    if path is None:
        emit_text(block)
        say(emitter.removals(selection, file=None))
        say(emitter.overruled(selection, snapshot, file=emitter.SYSTEM_FILE))
        return
    before = target.read(path)
    after = emitter.merge(before or "", block, file=str(path))
    _deliver(path, before, after, diff=diff)
    now = before if diff else after
    say(emitter.remarks(selection, now or "", file=str(path), nccl_version=version))
    say(emitter.removals(selection, file=str(path)))
    say(emitter.overruled(selection, snapshot, file=str(path)))
    say(emitter.kept(selection, now or "", snapshot, file=str(path), nccl_version=version))


@app.command("shell")
def shell(
    sources: SourceArgument = None,
    write: WriteOption = None,
    diff: DiffOption = False,
    include: IncludeOption = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    rules: RulesOption = None,
) -> None:
    """Write the settings as shell lines: export what to set, unset what to remove. --diff needs --write."""
    from topoadvisor.emit import selection as selecting
    from topoadvisor.emit import shell as emitter
    from topoadvisor.emit import target
    from topoadvisor.errors import TopoAdvisorError

    classes = selecting.parse_classes(include or [])
    path = _target(write)
    if diff and path is None:
        raise TopoAdvisorError(
            "there is no script to compare with", hint="Name it with --write; --diff then writes nothing."
        )
    before = None if path is None else target.read(path)
    machine = emitter.without_own_exports(load_snapshot(sources, assume, assume_file), before or "")
    snapshot, advice = _advise(machine, rules)
    version = selecting.nccl_version(snapshot)
    block = emitter.render(advice, classes, version)
    if path is None:
        emit_text(block)
        return
    after = emitter.merge(before or "", block, file=str(path))
    _deliver(path, before, after, diff=diff)
    selection = selecting.select(advice, classes, version)
    now = before if diff else after
    say(emitter.kept(selection, now or "", snapshot, file=str(path)))


@app.command("nccl-topo")
def nccl_topo(
    sources: SourceArgument = None,
    output: OutputOption = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """Write the machine as a topology file for NCCL_TOPO_FILE. What it leaves to NCCL is said on standard error."""
    from topoadvisor.emit import nccl_topo as emitter

    text, remarks = emitter.render(load_snapshot(sources, assume, assume_file))
    emit_text(text, output)
    say(remarks)


@app.command("nccl-graph")
def nccl_graph(
    sources: SourceArgument = None,
    gpus: GpusOption = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="GRAPH.xml",
            parser=some_path,
            help="NCCL's own choice: what NCCL_GRAPH_DUMP_FILE wrote in a job over these GPUs.",
            show_default=False,
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", min=0, metavar="PERCENT", help="Write only what gains as much.")
    ] = 5,
    force: Annotated[bool, typer.Option("--force", help="Write the file even where it gains less, or unseen.")] = False,
    model: Annotated[Model, typer.Option("--model", help="Which bandwidths the rings are chosen by.")] = "nccl",
    output: OutputOption = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """Write the best rings for NCCL_GRAPH_FILE, where they beat NCCL's own. Exit code 1: they do not."""
    need_numpy()
    from topoadvisor.emit import nccl_graph as emitter

    text, remarks = emitter.render(
        load_snapshot(sources, assume, assume_file),
        gpus=gpu_indexes(gpus),
        model=model,
        against=None if against is None else emitter.Given(read_text(against), str(against)),
        margin=margin,
        force=force,
    )
    emit_text(text, output)
    say(remarks)


def _advise(snapshot: Snapshot, rules: list[Path] | None) -> tuple[Snapshot, Advice]:
    """Advice for the machine as it is without what was written before. Raises NothingDetermined without a GPU."""
    from topoadvisor.advise import advise
    from topoadvisor.emit.nccl_conf import without_own_lines
    from topoadvisor.errors import NothingDetermined

    if not snapshot.gpus:
        raise NothingDetermined(
            "no NVIDIA GPU was found, so there is no telling what to set",
            hint="Give a snapshot, a pasted matrix or fixture:NAME as SOURCE; `topoadvisor scan` says what was asked.",
        )
    snapshot = without_own_lines(snapshot)
    return snapshot, advise(snapshot, rule_directories=rules or ())


def _target(write: Path | None) -> Path | None:
    return None if write is None or str(write) == "-" else write


def _deliver(path: Path, before: str | None, after: str, *, diff: bool) -> None:
    """Show the change, on stdout when it is what was asked for, and write it unless it was."""
    from topoadvisor.emit import target

    target.check_size(path, after)
    if not diff:
        target.check(path)
    change = target.difference(before, after, path)
    if diff:
        emit_text(change)
    else:
        sys.stderr.write(printable(change))
    if not change:
        say([f"{path} is already so"])
        return
    if diff:
        return
    backup = target.write(path, after, before=before)
    if backup is None:
        say([f"{path} was created"])
    else:
        say([f"{path} was written; what it held before is in {backup}"])
