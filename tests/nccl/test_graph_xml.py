"""NCCL's graph files: read as NCCL writes them, and checked as NCCL does not."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor.errors import InputError
from topoadvisor.nccl import graph_xml
from topoadvisor.nccl.graph_xml import Channel, Graph

DUMP = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="12.5" speedinter="12.5" \
typeintra="SYS" typeinter="PIX" samechannels="0">
    <channel>
      <gpu dev="0"/>
      <gpu dev="0xa"/>
      <gpu dev="0x2"/>
    </channel>
    <channel>
      <gpu dev="0x2"/>
      <gpu dev="0xa"/>
      <gpu dev="0"/>
    </channel>
  </graph>
  <graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0" \
typeintra="LOC" typeinter="LOC" samechannels="0"/>
</graphs>
"""

RING = Graph(
    id=0,
    pattern=4,
    speed_intra=12.5,
    speed_inter=12.5,
    type_intra="SYS",
    type_inter="PIX",
    channels=(Channel((0, 10, 2)), Channel((2, 10, 0))),
    declared=2,
)


def test_a_dump() -> None:
    ring, nvls = graph_xml.read(DUMP, file="g.xml")
    assert ring == RING
    assert (nvls.id, nvls.channels) == (3, ())
    assert graph_xml.ring([nvls, ring]) == ring
    assert graph_xml.faults(ring, [0, 2, 10]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": (Channel((0, 10)), Channel((2, 10, 0)))}, "Channel 0 goes over GPU0, GPU10, not over each of"),
        ({"channels": (Channel((0, 10, 10)),) * 2}, "Channel 0 goes over GPU0, GPU10, GPU10"),
        ({"channels": (Channel((0, 10, 2), (1, 1)),) * 2}, "Channel 0 leads through the network"),
        ({"channels": (Channel((0, 10, 2)),) * 33, "declared": None}, "There are 33 channels"),
        ({"channels": (), "declared": None}, "There are 0 channels"),
        ({"declared": 3}, "nchannels says 3, and there are 2"),
        ({"pattern": 1}, "The pattern is 1"),
        ({"speed_intra": 0.0}, "speedintra is 0"),
        ({"speed_inter": float("inf")}, "speedinter is inf"),
        ({"type_intra": "C2C"}, "The path type 'C2C' is none"),
        ({"same_channels": 1}, "samechannels says"),
    ],
)
def test_what_nccl_would_not_notice(change: dict[str, object], words: str) -> None:
    found = graph_xml.faults(replace(RING, **change), [0, 2, 10])  # type: ignore[arg-type]
    assert any(fault.startswith(words) for fault in found), found


def test_older_releases_have_room_for_half_as_many() -> None:
    many = replace(RING, channels=(Channel((0, 10, 2)),) * 20, declared=20)
    assert graph_xml.faults(many, [0, 2, 10], version="2.28.9") == []
    assert "room for 1 to 16" in graph_xml.faults(many, [0, 2, 10], version="2.21.5")[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the XML is broken here"),
        ("<system version='1'/>", "the root element is <system>"),
        ("<graphs/>", "version 1"),
        ("<graphs version='2'/>", "version 1"),
        ("<graphs version='1'><graph id='0'/></graphs>", "has no pattern"),
        (DUMP.replace('dev="0xa"', 'dev="x"'), "g.xml:5:7: dev is 'x'"),
        (DUMP.replace('dev="0xa"', ""), "this <gpu> has no dev"),
        (DUMP.replace('nchannels="2"', 'nchannels="two"'), "nchannels is 'two'"),
        (DUMP.replace('speedintra="12.5"', 'speedintra="nan"'), "speedintra is 'nan'"),
        ("<!DOCTYPE graphs [<!ENTITY a 'b'>]><graphs version='1'/>", "a document type stands here"),
    ],
)
def test_files_that_are_none(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        graph_xml.read(text, file="g.xml")
    assert words in caught.value.message


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        graph_xml.read(DUMP[:80] + text, file="g.xml")


def test_what_is_written_reads_back() -> None:
    assert graph_xml.read(graph_xml.write(RING, ["a comment"]), file="x") == [RING]


CAPTURE = Path(__file__).parents[3] / "shared" / "capture_h200x2"


@pytest.mark.skipif(not CAPTURE.is_dir(), reason="the capture of a real machine is not here")
def test_the_dump_of_a_real_run() -> None:
    graph = graph_xml.ring(graph_xml.read((CAPTURE / "nccl_graph.xml").read_text(), file="x"))
    assert graph is not None
    assert (len(graph.channels), graph.speed_intra, graph.type_intra) == (12, 30.0, "NVL")
    assert graph_xml.faults(graph, [0, 1], version="2.28.9") == []
