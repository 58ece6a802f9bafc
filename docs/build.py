"""Writes the generated pages under docs/: rules, command line, schemas. `--check` only says whether one is stale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from topoadvisor.rules.load import load

from topoadvisor.advice import Advice
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Snapshot

HERE = Path(__file__).resolve().parent
VERBS = ("scan", "matrix", "facts", "capture", "verify", "render", "emit nccl-conf", "emit shell")
VERBS += ("rules list", "rules check", "rules explain")


def pages() -> dict[str, str]:
    """File name → content of every generated page."""
    return {
        "rules.md": "".join(f"{line}\n" for line in _rules(load())),
        "cli.md": "".join(f"{line}\n" for line in _cli()),
        "snapshot.schema.json": _schema(Snapshot),
        "advice.schema.json": _schema(Advice),
    }


def _schema(root: type) -> str:
    return json.dumps(msgspec.json.schema(root), indent=1, sort_keys=True) + "\n"


def _rules(rules: list[Rule]) -> Iterator[str]:
    yield "# Rules"
    yield ""
    yield f"{len(rules)} rules. This page is generated from `rules/*.yaml` by `make docs`."
    yield ""
    yield "| id | name | subject | severity | status |"
    yield "|---|---|---|---|---|"
    for rule in rules:
        yield f"| [{rule.id}](#{rule.id.lower()}) | {rule.name} | {rule.subject} | {rule.severity} | {rule.status} |"
    for rule in rules:
        yield ""
        yield f"## {rule.id}"
        yield ""
        yield f"**{rule.title}**"
        yield ""
        yield rule.why.strip()
        yield ""
        yield f"Fires when: `{' '.join(rule.when.split())}`"
        for exception in rule.not_when:
            yield f"Not when: `{exception}`"
        for reference in rule.references:
            yield ""
            yield f"Source: <{reference.url}> (read {reference.read})"


def _cli() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Generated from the program's own help by `make docs`."
    program = str(Path(sys.executable).with_name("topoadvisor"))
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    for verb in VERBS:
        text = subprocess.run(
            [program, *verb.split(), "--help"], capture_output=True, text=True, check=True, env=environment
        ).stdout
        yield ""
        yield f"## topoadvisor {verb}"
        yield ""
        yield "```"
        yield from (line.rstrip() for line in text.strip().splitlines())
        yield "```"


def main() -> int:
    """Write the pages, or with `--check` name the stale ones and return 1 when there are any."""
    stale = []
    for name, content in pages().items():
        path = HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(content, encoding="utf-8")
    if "--check" in sys.argv and stale:
        print(f"stale: {', '.join('docs/' + name for name in stale)}. Run: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
