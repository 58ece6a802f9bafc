"""`topoadvisor prove`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from topoadvisor.cli.common import (
    DeadlineOption,
    FormatOption,
    NcclOption,
    SaveOption,
    emit_json,
    emit_text,
    need_numpy,
    page_width,
    say,
    some_path,
    wrapped,
)
from topoadvisor.cli.quantities import now, size_bytes

if TYPE_CHECKING:
    from topoadvisor.measurements.model import Collective
    from topoadvisor.snapshot import Snapshot
    from topoadvisor.verify.candidates import GraphFile, NotTried
    from topoadvisor.verify.group import Group
    from topoadvisor.verify.prove import Arm
    from topoadvisor.verify.rank_messages import Case
    from topoadvisor.verify.ready import Ready


def prove(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SETTING=VALUE]...",
            help="What to try; SETTING= unsets. Several are tried each by itself and all together.",
            show_default=False,
        ),
    ] = None,
    advice: Annotated[
        Path | None,
        typer.Option(
            "--advice",
            metavar="FILE",
            parser=some_path,
            help="Try the settings of an advice document (`scan --format json`).",
            show_default=False,
        ),
    ] = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="Try the few settings that rules find worth trying here.")
    ] = False,
    like: Annotated[
        Literal["ddp", "fsdp", "tp", "moe"] | None,
        typer.Option("--like", help="Collectives and sizes of such a job.", show_default=False),
    ] = None,
    collective: Annotated[
        list[str] | None,
        typer.Option(
            "--collective",
            metavar="NAME",
            help="all_reduce, all_gather, reduce_scatter, alltoall or sendrecv; may be repeated.",
            show_default="all_reduce, and alltoall where P2P or SHM are switched",
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="BYTES",
            help="Buffer, K, M or G allowed; may be repeated.",
            show_default="64K to 1G",
        ),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds", min=4, max=200, help="Of baseline and variants in turn; as many again for what differs."
        ),
    ] = 8,
    deadline: DeadlineOption = "60",  # type: ignore[assignment]  # typer parses the default too
    nccl: NcclOption = None,
    save: SaveOption = None,
    format: FormatOption = "text",
) -> None:
    """Measure whether settings help here: with and without, in turn, with an interval for each size.

    Every round starts fresh processes, one per GPU. What looks faster or slower is put to as many rounds again, and
    counts when they confirm it. What else is set in the environment holds for both sides. A setting is worth keeping
    when it is faster somewhere and slower nowhere; saved with --save, it is then advised. Needs CuPy and
    NCCL.

    Exit code: 0 nothing asked for hurts or breaks, 1 something does or NCCL fails as it is, 3 nothing could be
    measured, or whether a candidate is worth trying is not known, 130 interrupted.
    """
    from topoadvisor import collect
    from topoadvisor.cli import progress
    from topoadvisor.measurements import variables
    from topoadvisor.verify import asked, collectives, prove_report, run
    from topoadvisor.verify import prove as proving

    wanted = _asked(settings, advice, candidates)
    chosen, sizes = _what(like, collective, size)
    live = collect.capture_live()
    if save:
        run.base_for(save, live)
    with (
        progress.bar("prove") as tell,
        # A rank that cannot be killed may still write there.
        tempfile.TemporaryDirectory(prefix="topoadvisor-", ignore_cleanup_errors=True) as folder,
    ):
        here, group, library = collectives.ranks_here(live, os.environ, nccl=nccl, deadline_s=deadline)
        notes = asked.remarks(wanted, live, library=library)
        say(notes)
        notes = [*here.notes, *notes]
        arms = proving.arms_of(wanted)
        rest: list[NotTried] = []
        if candidates:
            tell(0, 0, "looking at what NCCL does by itself")
            arms, rest = _candidates(live, here, group, Path(folder))
            notes += map(str, rest)
        cases = _cases(chosen or proving.usual_collectives(arms), sizes, len(here.gpus))
        proof = proving.prove(group, arms, cases, rounds, progress=tell) if arms else None
    where = prove_report.Setting(
        [gpu.index for gpu in here.gpus], library, live.driver.version, now(), variables.recorded(live)
    )
    if proof is None:
        unknown = any(each.unknown for each in rest)
        _nothing(format, where, unknown, notes)
        if unknown:
            raise typer.Exit(3)
        return
    try:
        if save:
            # Before anything is printed: who reads that may leave.
            say(run.save(save, live, trials=prove_report.trials(proof, where)))
    finally:
        if format == "json":
            emit_json(prove_report.document(proof, where, notes))
        else:
            saved = str(save) if save else None
            emit_text(wrapped(prove_report.to_text(proof, where, notes, saved=saved), page_width()))
    # That a candidate hurts is an answer; nobody asked for it.
    if proof.exit_code and not (candidates and not proof.interrupted and proof.broken is None):
        raise typer.Exit(proof.exit_code)


def _nothing(format: str, where: Any, unknown: bool, notes: list[str]) -> None:
    """No candidate: an answer, too, where all of them are known."""
    from topoadvisor.verify import prove_report

    known = "Nothing is worth trying on this machine."
    notes = ["Whether anything is worth trying on this machine is not known." if unknown else known, *notes]
    if format == "json":
        emit_json(prove_report.nothing(where, notes))
    else:
        emit_text(wrapped("\n".join(notes), page_width()))


def _asked(words: list[str] | None, advice: Path | None, candidates: bool) -> Any:
    from topoadvisor.cli.common import read_text
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.verify import asked

    if [bool(words), advice is not None, candidates].count(True) != 1:
        raise TopoAdvisorError(
            "prove takes either SETTING=VALUE words, or --advice FILE, or --candidates",
            hint="For example `topoadvisor prove NCCL_MIN_CTAS=32`.",
        )
    if advice is not None:
        return asked.from_advice(read_text(advice).encode(errors="surrogateescape"), file=str(advice))
    return asked.from_words(words or [])


def _what(
    like: str | None, collectives: list[str] | None, sizes: list[str] | None
) -> tuple[tuple[Collective, ...], tuple[int, ...]]:
    """Collectives and sizes that the user names; none of the former where that is left to what is tried."""
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.measurements.model import COLLECTIVES
    from topoadvisor.verify import prove as proving

    if like is not None:
        if collectives or sizes:
            raise TopoAdvisorError(
                f"--like {like} names collectives and sizes itself", hint="Leave out the one or the other."
            )
        return proving.LIKE[like]
    if unknown := [name for name in collectives or () if name not in COLLECTIVES]:
        raise TopoAdvisorError(
            f"there is no collective {unknown[0]!r} here", hint=f"There are {', '.join(COLLECTIVES)}."
        )
    chosen = tuple(name for name in COLLECTIVES if name in (collectives or ()))
    return chosen, tuple(sorted({size_bytes(text) for text in sizes})) if sizes else proving.DEFAULT_SIZES


def _cases(collectives: tuple[Collective, ...], sizes: tuple[int, ...], ranks: int) -> list[Case]:
    from topoadvisor.verify import group

    return group.cases(collectives, sizes, ranks)


def _candidates(live: Snapshot, here: Ready, group: Group, folder: Path) -> tuple[list[Arm], list[NotTried]]:
    """A run as it is tells the channels and dumps NCCL's graph; rules then choose."""
    from topoadvisor import advise
    from topoadvisor.errors import Broken
    from topoadvisor.verify import candidates
    from topoadvisor.verify import group as groups
    from topoadvisor.verify import prove as proving

    dump = folder / "dump.xml"
    scout = group(_cases(("all_reduce",), (1 << 20,), len(here.gpus)), {"NCCL_GRAPH_DUMP_FILE": str(dump)}, True)
    if groups.begun(scout).failure or scout.began is None:
        raise Broken(f"NCCL does not run here as it is: {scout.failure}")
    indexes = [gpu.index for gpu in here.gpus]
    return candidates.candidates(
        advise.analyse(live).facts,
        indexes,
        version=scout.began.nccl,
        channels=proving.channels_of(scout),
        graph=_graph_file(live, indexes, dump, folder / "graph.xml"),
    )


def _graph_file(live: Snapshot, gpus: list[int], dump: Path, path: Path) -> GraphFile:
    """Write a graph file whose rings beat NCCL's own in its own model, where there are such."""
    from topoadvisor.emit import nccl_graph
    from topoadvisor.errors import Declined, TopoAdvisorError
    from topoadvisor.verify.candidates import GraphFile

    need_numpy()
    try:
        given = nccl_graph.Given(dump.read_text(), dump.name)
        text, _ = nccl_graph.render(live, gpus=gpus, against=given)
    except (OSError, UnicodeDecodeError):
        return GraphFile(unknown="NCCL wrote no dump of its own rings to compare with")
    except Declined:
        return GraphFile()
    except TopoAdvisorError as error:
        return GraphFile(unknown=error.message)
    path.write_text(text)
    return GraphFile(str(path))
