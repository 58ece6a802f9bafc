"""Releases that are newer than what is known: said once, with what is assumed."""

from __future__ import annotations

import pytest

from tests.lint.test_checks import report
from topoadvisor.advise import advise
from topoadvisor.ingest import assume, detect
from topoadvisor.nccl import newer, rates, settings
from topoadvisor.predict.predict import predict
from topoadvisor.render import lint_text


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, None),
        ("no version", None),
        ("2.18.1", None),
        (rates.NEWEST, None),
        ("2.31.2", f"its variables are known (up to {settings.NEWEST})"),
        (settings.NEWEST, f"taken to be what {rates.NEWEST} does"),
        ("2.99", f"its variables are taken to be those of {settings.NEWEST}"),
        ("9.9.9", f"its variables are taken to be those of {settings.NEWEST}"),
    ],
)
def test_a_release_that_is_too_new_is_said_to_be(version: str | None, said: str | None) -> None:
    sentence = newer.said(version)
    assert (sentence is None) == (said is None)
    assert said is None or said in (sentence or "")


def test_every_verb_says_it_once() -> None:
    machine = detect.read(["fixture:8x4090"], stdin=None)
    snapshot = assume.apply(machine, assume.gather(["nccl.version=9.9.9"], None))
    sentence = newer.said("9.9.9")
    assert advise(snapshot).notes.count(sentence or "") == 1
    assert predict(snapshot).notes.count(sentence or "") == 1
    linted = report("export NCCL_ALGO=Ring\n", version="9.9.9", version_from="--nccl-version")
    text = " ".join(lint_text.render(linted).split())
    assert text.count(sentence or "") == 1
