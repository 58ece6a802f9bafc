"""Writes the generated pages under docs/: rules, command line, schemas. `--check` only says whether one is stale."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from topoadvisor.advice import Advice
from topoadvisor.diff.document import Diff
from topoadvisor.joblog.document import Log
from topoadvisor.rules.load import load
from topoadvisor.rules.model import Rule
from topoadvisor.snapshot import Snapshot

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
OUTPUT = re.compile(r"<!-- output: (?P<command>[^>]+?) -->\n```console\n.*?```\n", re.DOTALL)
VERBS = ("scan", "matrix", "facts", "capture", "verify", "render", "emit nccl-conf", "emit shell")
VERBS += ("diff", "log", "hardware list", "hardware show")
VERBS += ("rules list", "rules check", "rules explain")


def pages() -> dict[str, str]:
    """Path → content of every generated page."""
    return {
        "../README.md": OUTPUT.sub(_output, README.read_text(encoding="utf-8")),
        "rules.md": "".join(f"{line}\n" for line in _rules(load())),
        "cli.md": "".join(f"{line}\n" for line in _cli()),
        "snapshot.schema.json": _schema(Snapshot),
        "advice.schema.json": _schema(Advice),
        "diff.schema.json": _schema(Diff),
        "log.schema.json": _schema(Log),
    }


def _output(match: re.Match[str]) -> str:
    """A README block with what the program prints today."""
    command = match["command"]
    return f"<!-- output: {command} -->\n```console\n$ topoadvisor {command}\n{_run(*command.split()).rstrip()}\n```\n"


def _run(*arguments: str) -> str:
    program = str(Path(sys.executable).with_name("topoadvisor"))
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode > 1:  # 1 is an answer: there are findings, or something changed
        raise RuntimeError(done.stderr)
    return done.stdout


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
    for verb in VERBS:
        text = _run(*verb.split(), "--help")
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
    if "--check" not in sys.argv:
        # Not checked: other versions of the drawing library give other bytes for the same picture.
        _run("render", "fixture:dgx-1v", "-o", str(HERE / "dgx-1v.svg"))
    elif stale:
        names = (os.path.normpath(f"docs/{name}") for name in stale)
        print(f"stale: {', '.join(names)}. Run: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
