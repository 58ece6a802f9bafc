"""`topoadvisor lint`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from topoadvisor.cli.common import (
    RulesOption,
    emit_json,
    emit_text,
    load_snapshot,
    page_width,
    printable,
    some_path,
    use_color,
)
from topoadvisor.lint.kinds import FileKind

if TYPE_CHECKING:
    from topoadvisor.lint.document import Report
    from topoadvisor.lint.run import Library, Source


def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="nccl.conf, scripts, Dockerfiles, Makefiles, Compose, Kubernetes and other YAML or JSON, batch "
            "scripts, .env, .deepspeed_env, Python, units of systemd, Lua module files; a folder of them; - for "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        bool,
        typer.Option("--env", help="The environment of this process, and the files that NCCL would read below it."),
    ] = False,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="SOURCE",
            help="The machine that the lines are for (any SOURCE that scan takes, `live` for this one): judges effect "
            "and harm there.",
            show_default=False,
        ),
    ] = None,
    nccl_version: Annotated[
        str | None,
        typer.Option("--nccl-version", metavar="V", help="Judge for this NCCL, e.g. 2.28.9.", show_default=False),
    ] = None,
    nccl_lib: Annotated[
        Path | None,
        typer.Option(
            "--nccl-lib",
            metavar="PATH",
            parser=some_path,
            help="A libnccl.so: its version, and the names that it holds, are the judge.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        FileKind | None,
        typer.Option("--as", help="What the files are, where their names do not say.", show_default=False),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what is certain, show the difference, report the rest.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what --fix would change, and write nothing.")] = False,
    output_format: Annotated[
        Literal["text", "json", "github", "sarif"], typer.Option("--format", help="Output format.")
    ] = "text",
    fail_on: Annotated[
        Literal["error", "warning", "info", "never"],
        typer.Option("--fail-on", help="Exit with 1 when there is a finding of this severity or worse."),
    ] = "error",
    rules: RulesOption = None,
) -> None:
    """Check the lines that set NCCL's variables, and those beside them.

    Names that nobody reads, values that NCCL reads as something else, lines that reach nobody, contradict each other or
    differ between ranks; with --topology, what has no effect or does harm there. `# topoadvisor: ignore[CODE] reason`
    silences a finding on its line or the one below. All codes: docs/lint.md.

    Exit codes: 0 fine, 1 findings at or above --fail-on, 2 wrong usage, or a file that cannot be read or parsed (in a
    folder, templates may be so).
    """
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.lint import files as reading
    from topoadvisor.lint.document import SEVERITIES

    if bool(files) == env:
        raise TopoAdvisorError(
            "lint takes files, or --env" if env else "there is nothing to check",
            hint="Name files or folders, - for standard input, or --env for the environment of this process.",
        )
    if [*(files or []), topology].count("-") > 1:
        raise TopoAdvisorError("standard input can be given only once", hint="Give the others as files.")
    if fix and (env or "-" in (files or [])):
        raise TopoAdvisorError("--fix writes files only", hint="--diff shows the repairs without writing them.")
    asked = _Asked(topology, nccl_version, nccl_lib, rules, overridden=env)
    sources = _environment(asked.version) if env else list(reading.sources(files or [], kind, sys.stdin.buffer))
    report = asked.judge(sources)
    shown = ""
    write = fix and not diff
    if fix or diff:
        sources, shown = _repair(asked, sources, report.nccl, write=write)
        report = asked.judge(sources) if write else report
    _print(report, asked, output_format, shown)
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on != "never" else ()
    if any(not each.templates for each in report.not_read):
        raise typer.Exit(2)
    if any(finding.severity in failing for finding in report.findings):
        raise typer.Exit(1)


class _Asked:
    """What the files are judged for, read once."""

    def __init__(
        self,
        topology: str | None,
        version: str | None,
        library: Path | None,
        rules: list[Path] | None,
        overridden: bool,
    ) -> None:
        from topoadvisor.errors import TopoAdvisorError
        from topoadvisor.nccl import versions
        from topoadvisor.rules import load

        try:
            self.version = None if version is None else versions.release(version)
        except ValueError:
            raise TopoAdvisorError(f"{str(version)[:40]!r} is no version of NCCL", hint="Write it as 2.28.9.") from None
        self.rules = load.load(rules or [])
        self.overridden = overridden
        self.topology = topology
        self.snapshot = None if topology is None else load_snapshot(None if topology == "live" else topology)
        self.version_from = "--nccl-version"
        if version is not None and self.version != version and len(versions.parse(version)) == 2:
            self.version_from = f"--nccl-version {version}: the last release of this series"
        self.nccl_library = _library(library, self.version, installed=topology in (None, "live"))
        if self.version is None and self.nccl_library is not None:
            self.version, self.version_from = self.nccl_library.version, "the library"

    def judge(self, sources: list[Source]) -> Report:
        from topoadvisor.lint import run
        from topoadvisor.predict.effects import Effects

        return run.lint(
            sources,
            self.rules,
            version=self.version,
            version_from=self.version_from,
            nccl_library=self.nccl_library,
            snapshot=self.snapshot,
            topology=self.topology,
            effects=Effects,
            overridden=self.overridden,
        )


def _library(path: Path | None, version: str | None, *, installed: bool) -> Library | None:
    """The library that was named, or one of this machine that is of the version asked for."""
    from topoadvisor.collect import nccl_lib
    from topoadvisor.lint.run import Library

    place = str(path) if path is not None else nccl_lib.installed(version) if installed else None
    if place is None:
        return None
    found, names = nccl_lib.look_into(place)
    return Library(place, version or found, names)


def _environment(version: str | None) -> list[Source]:
    """The environment of this process, and the files that NCCL would read below it."""
    from topoadvisor.collect import variables
    from topoadvisor.collect.world import World
    from topoadvisor.lint import files as reading
    from topoadvisor.lint.run import Source
    from topoadvisor.nccl import conf

    world = World.real()
    lines = "".join(f"{each.name}={each.value}\n" for each in variables.from_environment(world))
    paths = [path for path in conf.paths(world.environ, world.home, version) if Path(path).is_file()]
    return [Source("environment", lines, "environment"), *reading.sources(paths, "nccl.conf", sys.stdin.buffer)]


def _repair(asked: _Asked, sources: list[Source], version: str | None, *, write: bool) -> tuple[list[Source], str]:
    """The sources after their repairs, and what changed as a unified diff."""
    from topoadvisor.emit import target
    from topoadvisor.lint import files as reading
    from topoadvisor.lint import run

    repaired = [run.repair(source, version=version, nccl_library=asked.nccl_library) for source in sources]
    shown = ""
    for before, after in zip(sources, repaired, strict=True):
        if after.text != before.text:
            shown += target.difference(before.text, after.text, Path(before.file))
            if write:
                reading.write(before, after.text)
    return repaired, shown


def _print(report: Report, asked: _Asked, output_format: str, shown: str) -> None:
    if output_format == "text":
        from topoadvisor.render import lint_text

        # Colours are ours: what a file holds is not to steer the terminal.
        emit_text(shown.replace("\x1b", "?") + lint_text.render(report, width=page_width(), color=use_color()))
        return
    if shown:
        sys.stderr.write(printable(shown.replace("\x1b", "?")))
    if output_format == "json":
        emit_json(report)
        return
    from topoadvisor.render import lint_formats

    if output_format == "sarif":
        emit_json(lint_formats.sarif(report, asked.rules))
    else:
        emit_text(lint_formats.github(report))
