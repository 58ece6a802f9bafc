"""`topoadvisor rules list|check|explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from topoadvisor.cli.common import FormatOption, emit_json, emit_text, readable, some_path

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, check or explain the rules.")

RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        parser=some_path,
        help="A folder of more rules; may be repeated.",
        show_default=False,
    ),
]


@app.command("list")
def list_(rules: RulesOption = None, format: FormatOption = "text") -> None:
    """List every rule: id, severity, what it is about, name."""
    from topoadvisor.rules import load

    found = load.load(rules or [])
    if format == "json":
        emit_json({"rules": found})
        return
    from topoadvisor.rules import describe

    emit_text(describe.table(found))


@app.command()
def check(rules: RulesOption = None) -> None:
    """Check the rules for faults: file and line of each on stderr, exit code 1 when there is one."""
    from topoadvisor.rules import check as checking

    report = checking.check(rules or [])
    for warning in report.warnings:
        print(f"warning: {readable(warning)}", file=sys.stderr)
    for fault in report.faults:
        print(readable(fault.message), file=sys.stderr)
        if fault.hint:
            print(f"  hint: {readable(fault.hint)}", file=sys.stderr)
    if report.faults:
        raise typer.Exit(1)
    emit_text(f"{len(report.rules)} rules, no faults\n")


@app.command()
def explain(rule_id: Annotated[str, typer.Argument(metavar="ID")], rules: RulesOption = None) -> None:
    """Say everything about one rule: what it looks at, why it matters, what it advises, where that is from."""
    from topoadvisor.errors import TopoAdvisorError
    from topoadvisor.rules import describe, load
    from topoadvisor.vocabulary import suggestion

    found = {rule.id: rule for rule in load.load(rules or [])}
    rule = found.get(rule_id.upper()) or next((rule for rule in found.values() if rule.name == rule_id), None)
    if rule is None:
        hint = suggestion(rule_id.upper(), found) or "`topoadvisor rules list` lists them."
        raise TopoAdvisorError(f"there is no rule {rule_id}", hint=hint)
    emit_text(describe.explain(rule))
