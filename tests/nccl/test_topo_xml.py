from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoadvisor.errors import InputError
from topoadvisor.nccl import topo_xml
from topoadvisor.nccl.topo_xml import Element


def test_what_is_written_is_read_by_nccl(nccl_parser: ModuleType) -> None:
    gpu = Element("gpu", {"dev": "0"}, children=[Element("nvlink", {"target": "fffffff:ff:ff.0", "count": "18"})])
    pci = Element("pci", {"busid": "0000:01:00.0", "link_speed": ""}, children=[gpu])
    root = Element("system", {"version": "1"}, children=[Element("cpu", {"numaid": "-1"}, children=[pci])])
    text = topo_xml.write(root, ["Topology of one machine, a=b after the first word"])
    system = nccl_parser.load(text)
    assert system.attributes == {"version": "1"}
    assert system.children[0].children[0].attributes == {"busid": "0000:01:00.0", "link_speed": ""}
    assert text == (
        "<!-- Topology of one machine, a=b after the first word -->\n"
        '<system version="1">\n'
        '  <cpu numaid="-1">\n'
        '    <pci busid="0000:01:00.0" link_speed="">\n'
        '      <gpu dev="0">\n'
        '        <nvlink target="fffffff:ff:ff.0" count="18"/>\n'
        "      </gpu>\n"
        "    </pci>\n"
        "  </cpu>\n"
        "</system>\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0"?>\n<system version="1"></system>',
        '<system version="1">\n\t<cpu numaid="0"/></system>',
        '<system version="1"  name="two blanks"></system>',
        '<system version="1"><cpu numaid="0"></system>',
        "<!--name=value --><system></system>",
    ],
)
def test_the_stand_in_for_nccls_parser_refuses_what_nccl_refuses(text: str, nccl_parser: ModuleType) -> None:
    with pytest.raises(nccl_parser.Refused):
        nccl_parser.load(text)


@pytest.mark.parametrize("value", ['a"b', "a<b", "a&b", "ä", "a\tb", "a\nb", "x" * 255])
def test_values_that_nccl_would_misread_are_not_written(value: str) -> None:
    assert not topo_xml.writable(value)
    with pytest.raises(ValueError, match="no value"):
        topo_xml.write(Element("system", {"name": value}))


@pytest.mark.parametrize("line", ["two -- dashes", "größer"])
def test_comments_that_nccl_would_misread_are_not_written(line: str) -> None:
    with pytest.raises(ValueError, match="no comment"):
        topo_xml.write(Element("system"), [line])


@given(value=st.text(alphabet=st.characters(min_codepoint=9, max_codepoint=0x17F), max_size=300))
def test_a_writable_value_comes_back_from_both_readers(value: str, nccl_parser: ModuleType) -> None:
    if topo_xml.writable(value):
        text = topo_xml.write(Element("system", {"version": "1", "name": value}))
        assert nccl_parser.load(text).attributes["name"] == value
        assert topo_xml.parse(text, file="x").attributes["name"] == value


def test_only_attributes_that_nccl_reads() -> None:
    element = Element("net", {"keep": "1", "name": "eth0", "colour": "red", "dev": "0"})
    assert topo_xml.known(element) == {"name": "eth0", "dev": "0", "keep": "1"}
    assert not topo_xml.is_known("colour")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("<system version='2'/>", "x:1:1: this is version 2"),
        ("<graphs/>", "x:1:1: the root element is <graphs>"),
        ("<!DOCTYPE system><system/>", "a document type stands here"),
        ("<system>\n<cpu>", "x:2:"),
    ],
)
def test_errors_name_the_place(text: str, place: str) -> None:
    with pytest.raises(InputError, match=place):
        topo_xml.parse(text, file="x")


@pytest.mark.parametrize(
    ("version", "most"), [(None, 128), ("2.20.5", 32), ("2.21.5", 128), ("2.29.3", 128), ("2.29.7", 640)]
)
def test_how_many_elements_fit_into_one(version: str | None, most: int) -> None:
    assert topo_xml.most_children(version) == most
