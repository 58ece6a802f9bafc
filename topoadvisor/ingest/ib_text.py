"""`ibstat` and `ibv_devinfo`: RDMA devices and the state of their ports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from topoadvisor.ingest.lines import Line
from topoadvisor.ingest.part import Part, decimal, number, source
from topoadvisor.snapshot import IbPort, Nic, Snapshot

IBSTAT_LINE: Final = re.compile(r"^\s*CA '(?P<name>[A-Za-z][\w.-]{0,62})'\s*$")
IBSTAT_MORE: Final = re.compile(
    r"^\s*(?:CA type|Number of ports|Firmware version|Hardware version|Node GUID|System image GUID|Port [0-9]{1,3}|"
    r"State|Physical state|Rate|Base lid|LMC|SM lid|Capability mask|Port GUID|Link layer):"
)
DEVINFO_LINE: Final = re.compile(r"^\s*hca_id:\s*(?P<name>[A-Za-z][\w.-]{0,62})\s*$")
DEVINFO_MORE: Final = re.compile(r"^\s+[A-Za-z][\w ]{1,40}(?:\[[ 0-9]{1,4}\])?:|^\s+[A-Z_]{3,60}\s*$")

_PORT = re.compile(r"^\s*(?:Port (?P<ibstat>[0-9]{1,3}):|port:\s*(?P<devinfo>[0-9]{1,3}))\s*$")
_VALUE = re.compile(r"^\s*(?P<key>[A-Za-z][\w ]{1,40}?):\s*(?P<value>\S.{0,80})")
_STATES: Final = {"active": "ACTIVE", "down": "DOWN", "initializing": "INIT", "init": "INIT", "armed": "ARMED"}
_WIDTHS: Final = {"1X": 1, "2X": 2, "4X": 4, "8X": 8, "12X": 12}
_LAYERS: Final = {"infiniband": "InfiniBand", "ethernet": "Ethernet"}


def ibstat_part(lines: Iterable[Line], file: str) -> Part:
    """Read the devices of one `ibstat`; its rate is Gbit/s of the whole link."""
    return _part("ibstat", lines, IBSTAT_LINE, file)


def devinfo_part(lines: Iterable[Line], file: str) -> Part:
    """Read the devices of one `ibv_devinfo`; width and speed, which make the rate, need `-v`."""
    return _part("ibv_devinfo", lines, DEVINFO_LINE, file)


def _part(name: str, lines: Iterable[Line], begins: re.Pattern[str], file: str) -> Part:
    nics: dict[str, dict[int, dict[str, str]]] = {}
    ports: dict[int, dict[str, str]] = {}
    values: dict[str, str] | None = None
    for line in lines:
        if device := begins.match(line.text):
            ports = nics.setdefault(device["name"], {})
            values = None
        elif port := _PORT.match(line.text):
            values = ports.setdefault(int(port["ibstat"] or port["devinfo"]), {})
        elif values is not None and (value := _VALUE.match(line.text)):
            values.setdefault(value["key"].lower(), value["value"].strip())
    read = [
        Nic(name=device, rdma=True, ports=[_port(port, told) for port, told in sorted(found.items())])
        for device, found in nics.items()
    ]
    return Part(Snapshot(sources=[source(name)], nics=read), file)


def _port(port: int, told: dict[str, str]) -> IbPort:
    state = told.get("state", "").removeprefix("PORT_").partition(" ")[0].lower()
    physical = (told.get("physical state") or told.get("phys_state") or "").partition(" (")[0]
    layer = (told.get("link layer") or told.get("link_layer") or "").lower()
    return IbPort(
        port=port,
        state=_STATES.get(state),
        physical_state=_physical(physical),
        rate_gbit=_rate(told),
        link_layer=_LAYERS.get(layer),
        active_mtu=number(told.get("active_mtu", "").partition(" ")[0]),
    )


def _physical(text: str) -> str | None:
    """`LinkUp` as the kernel and `ibstat` spell it, from `LINK_UP` too."""
    if not text:
        return None
    return "".join(word.capitalize() for word in text.split("_")) if text.isupper() else text


def _rate(told: dict[str, str]) -> float | None:
    if (rate := decimal(told.get("rate"))) is not None:
        return rate
    lanes = _WIDTHS.get(told.get("active_width", "").partition(" ")[0])
    speed = decimal(told.get("active_speed"))
    return lanes * speed if lanes is not None and speed is not None else None
