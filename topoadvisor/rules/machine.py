"""What the defaults of variables depend on, out of the facts of a machine."""

from __future__ import annotations

from collections.abc import Mapping

from topoadvisor.nccl import versions
from topoadvisor.nccl.defaults import Machine
from topoadvisor.rules.scope import Fact, Known


def nccl_version(node: Mapping[str, Fact]) -> str | None:
    """Version of the NCCL library; None = not known, or no version."""
    found = _text(node, "nccl.version")
    return found if found is not None and versions.is_version(found) else None


def of(node: Mapping[str, Fact]) -> Machine:
    """The machine as `nccl.defaults` asks for it; None wherever a fact is not known."""
    capability = _value(node, "gpus.compute_capability_min")
    return Machine(
        arch=_text(node, "cpu.architecture"),
        cpu_vendor=_text(node, "cpu.vendor"),
        cpu_family=_number(node, "cpu.family"),
        cpu_model=_number(node, "cpu.model"),
        gpus=_number(node, "gpus.count") or None,
        compute_capability=float(capability)
        if isinstance(capability, (int, float)) and not isinstance(capability, bool)
        else None,
        nvlink=_truth(node, "nvlink.any"),
        nvswitch=_truth(node, "nvlink.switch"),
        c2c=_truth(node, "c2c.any"),
        cuda=_text(node, "cuda.version"),
    )


def _value(node: Mapping[str, Fact], name: str) -> object:
    fact = node[name]
    return fact.value if isinstance(fact, Known) else None


def _text(node: Mapping[str, Fact], name: str) -> str | None:
    value = _value(node, name)
    return value if isinstance(value, str) else None


def _number(node: Mapping[str, Fact], name: str) -> int | None:
    value = _value(node, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _truth(node: Mapping[str, Fact], name: str) -> bool | None:
    value = _value(node, name)
    return value if isinstance(value, bool) else None
