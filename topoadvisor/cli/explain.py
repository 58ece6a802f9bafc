"""`topoadvisor explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    RulesOption,
    SourceArgument,
    emit_json,
    emit_text,
    load_snapshot,
)


def explain(
    word: Annotated[
        str,
        typer.Argument(
            metavar="WORD",
            help="A variable, NAME=VALUE, a pair (GPU0-GPU1), a system (gin, mnnvl, mig), `systems` for all of them, "
            "`vendor`, a rule, a code of lint, a term or a fact.",
        ),
    ],
    source: SourceArgument = None,
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
    rules: RulesOption = None,
    output_format: FormatOption = "text",
) -> None:
    """Say what a word means, and of a variable what it is here.

    Of a variable: since when NCCL reads it, how, its defaults, what to beware of, whether it is set and what NCCL makes
    of that. NAME=VALUE says what NCCL would make of that value. Of a pair of GPUs: what can make it slow, refused or
    hang, step by step, each with its evidence and the command that shows it. Of a system: what it takes, and what of
    that is here. Of the vendor: what it publishes for NCCL on this machine type, beside what is set.
    """
    from topoadvisor.explain import lookup
    from topoadvisor.rules import load

    snapshot = load_snapshot(source, assume, assume_file) if source or lookup.needs_machine(word) else None
    explanation = lookup.explain(word, load.load(rules or []), snapshot)
    if output_format == "json":
        emit_json(explanation)
    else:
        from topoadvisor.explain import text

        emit_text(text.render(explanation))
