"""Cases of public threads through --assume-file: right cause, right action, no variable that is not needed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from topoadvisor import advise, files
from topoadvisor.advice import Advice
from topoadvisor.ingest import assume, detect

CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "support.yaml").read_text(encoding="utf-8"))


def advice_of(case: dict[str, Any], folder: Path) -> Advice:
    """What `scan SOURCE --assume-file FACTS` advises."""
    told = folder / "facts.yaml"
    told.write_text(yaml.safe_dump(case["facts"]), encoding="utf-8")
    source = folder / "topo.txt"
    if "matrix" in case:
        source.write_text(case["matrix"], encoding="utf-8")
    else:
        source = files.shipped("fixtures") / case["machine"] / "snapshot.json"
    machine = detect.read([str(source)], stdin=io.BytesIO())
    return advise.advise(assume.apply(machine, assume.gather([], told)))


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    advice = advice_of(case, tmp_path)
    said = {finding.id: finding for finding in advice.findings}
    assert set(case["says"]) <= set(said), sorted(said)
    assert not set(case.get("not", ())) & set(said), sorted(said)
    texts = "\n".join(
        f"{action.text}\n{action.command or ''}" for finding in advice.findings for action in finding.advice
    )
    assert not [text for text in case["does"] if text not in texts]
    assert {each.name: each.value for each in advice.settings} == case["settings"]
    assert case["settings"] or advice.set_nothing
    assert not [finding.message for finding in advice.findings if "unknown" in finding.message]


def test_there_are_at_least_twenty() -> None:
    assert len(CASES) >= 20
    assert all(case["source"].startswith("https://") for case in CASES.values())
