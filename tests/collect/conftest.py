"""Fake machines: file trees, programs and an NVML that answers what a real one answered."""

from __future__ import annotations

import ctypes
import io
import struct
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topoadvisor.collect import nvml
from topoadvisor.collect.world import Completed, World

ALL_ONES = 0xFFFFFFFF


class Tree:
    """A file system below a temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, content: str | bytes) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def folder(self, path: str) -> None:
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def pci(self, place: str, **attributes: str | bytes) -> str:
        """A PCI function at `place` below /sys/devices, with its entry in /sys/bus/pci/devices; returns its folder."""
        address = place.rpartition("/")[2]
        links = {name: str(attributes.pop(name)) for name in ("driver", "iommu_group", "physfn") if name in attributes}
        for name, content in attributes.items():
            self.file(f"/sys/devices/{place}/{name}", content if isinstance(content, bytes) else f"{content}\n")
        for name, target in links.items():
            self.link(f"/sys/devices/{place}/{name}", target)
        self.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/{place}")
        return f"/sys/devices/{place}"

    def interface(self, name: str, device: str | None = None, **attributes: str) -> None:
        """A network interface; `device` is the folder of what it belongs to."""
        folder = f"{device}/net/{name}" if device else f"/sys/devices/virtual/net/{name}"
        for attribute, text in {"ifindex": "7", "iflink": "7", "type": "1", "uevent": "", **attributes}.items():
            self.file(f"{folder}/{attribute}", f"{text}\n")
        if device:
            self.link(f"{folder}/device", "../..")
        self.link(f"/sys/class/net/{name}", f"../../..{folder}")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


def config_space(port_type: int, acs: int | None, size: int = 4096) -> bytes:
    """Configuration space with a PCIe capability, and an ACS capability unless `acs` is None."""
    config = bytearray(size)
    struct.pack_into("<HH", config, 0, 0x8086, 0x352A)
    struct.pack_into("<H", config, 0x06, 0x10)
    config[0x34] = 0x40
    config[0x40], config[0x41] = 0x01, 0x50  # power management first, then PCIe
    if size >= 256:
        config[0x50], config[0x51] = 0x10, 0x00
        struct.pack_into("<H", config, 0x52, port_type << 4 | 2)
    if size >= 4096:
        struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | (0x150 << 20 if acs is not None else 0))
        if acs is not None:
            struct.pack_into("<I", config, 0x150, 0x000D | 1 << 16)
            struct.pack_into("<HH", config, 0x154, 0x5F, acs)
    return bytes(config)


class NVMLError(Exception):
    """Like pynvml's: a code, equality without a hash, and a text that must not be asked for."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other.value)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        raise AssertionError("str() of an NVML error calls into the library")


def nvml_error(name: str, code: int) -> NVMLError:
    return type(f"NVMLError_{name}", (NVMLError,), {})(code)  # type: ignore[no-any-return]


NOT_SUPPORTED = nvml_error("NotSupported", 3)
INVALID = nvml_error("InvalidArgument", 2)


class FakeNvml:
    """A module like pynvml. `answers` maps a function to a value, an exception to raise or a callable to call."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.answers:
            raise AttributeError(name)
        answer = self.answers[name]

        def function(*arguments: Any) -> Any:
            self.called.append(name)
            value = answer(*arguments) if callable(answer) else answer
            if isinstance(value, BaseException):
                raise value
            return value

        return function


def pci_info(domain: int, bus: int, device: int, device_id: int = 0x233510DE) -> Any:
    text = f"{domain:08X}:{bus:02X}:{device:02X}.0"
    return types.SimpleNamespace(domain=domain, bus=bus, device=device, pciDeviceId=device_id, busId=text)


HIDDEN = pci_info(ALL_ONES, 0xFF, 0xFF, ALL_ONES)


def field_values(table: Mapping[int, tuple[int, int, int]]) -> Callable[..., Any]:
    """Field entries by id: (return code, value type, value); an unknown id answers InvalidArgument in its entry."""

    def query(_handle: Any, wanted: Sequence[tuple[int, int]]) -> list[Any]:
        entries = []
        for number, _link in wanted:
            code, kind, value = table.get(number, (2, 0, 0))
            members = dict.fromkeys(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"), 0)
            members[list(members)[kind]] = value
            entries.append(
                types.SimpleNamespace(nvmlReturn=code, valueType=kind, value=types.SimpleNamespace(**members))
            )
        return entries

    return query


def h200_pair() -> dict[str, Any]:
    """What NVML of driver 580 answered in a guest with two H200: its switches are outside."""

    def link(value: Any) -> Callable[..., Any]:
        return lambda _handle, number: value if number < 18 else INVALID

    def fabric(_handle: Any, reference: Any) -> int:
        info = reference._obj
        assert ctypes.sizeof(info) == 36
        assert info.version == 0x02000024
        info.state = 3
        return 0

    def p2p(_a: int, _b: int, capability: Any) -> int:
        if not isinstance(capability, int):
            raise ctypes.ArgumentError("argument 3: TypeError: Don't know how to convert parameter 3")
        return {0: 0, 1: 0, 2: 0, 3: 0, 4: 5}[capability]

    return {
        "NVML_P2P_CAPS_INDEX_READ": (0,),
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.159.04",
        "nvmlSystemGetCudaDriverVersion": 13000,
        "nvmlDeviceGetCount": 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-00000000-0000-4000-8000-{handle:012d}",
        "nvmlDeviceGetPciInfo": lambda handle: pci_info(0, 0, 6 + handle),
        "nvmlDeviceGetCudaComputeCapability": [9, 0],
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=150754820096),
        "nvmlDeviceGetBAR1MemoryInfo": types.SimpleNamespace(bar1Total=274877906944),
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetPcieReplayCounter": 0,
        "nvmlDeviceGetBrand": 14,
        "nvmlDeviceGetNumaNodeId": NOT_SUPPORTED,
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetVirtualizationMode": 1,
        "nvmlDeviceGetPerformanceState": 0,
        "nvmlDeviceGetCpuAffinity": lambda _handle, words: [0xFFFFFFFF] + [0] * (words - 1),
        "nvmlDeviceGetMemoryAffinity": lambda _handle, words, _scope: [1] + [0] * (words - 1),
        "nvmlDeviceGetNvLinkState": link(1),
        "nvmlDeviceGetNvLinkVersion": link(6),
        "nvmlDeviceGetNvLinkRemoteDeviceType": link(2),
        "nvmlDeviceGetNvLinkRemotePciInfo": link(HIDDEN),
        "nvmlDeviceGetFieldValues": field_values({164: (0, 1, 26562), 84: (3, 0, 0), 170: (3, 1, 0)}),
        "nvmlDeviceGetC2cModeInfoV": types.SimpleNamespace(isC2cEnabled=0),
        "nvmlDeviceGetGpuFabricInfoV": fabric,
        "nvmlDeviceGetTopologyCommonAncestor": 30,
        "nvmlDeviceGetP2PStatus": p2p,
    }


class Done:
    """A job that has ended."""

    def __init__(self, completed: Completed) -> None:
        self.completed = completed

    def finish(self, deadline_s: float) -> Completed:
        return self.completed

    def stop(self) -> None:
        pass


def worker_output(module: Any) -> bytes:
    """What the worker process prints for a module like pynvml."""
    lines = io.BytesIO()
    nvml.read(module, lambda piece: lines.write(msgspec.json.encode(piece) + b"\n"))
    return lines.getvalue()


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tree: Tree) -> MakeWorld:
    """A world with the fake tree, the programs given as {"nvidia-smi topo -m": (code, output)} and a fake NVML."""

    def make(
        *,
        programs: Mapping[str, tuple[int | None, str]] | None = None,
        environ: Mapping[str, str] | None = None,
        module: Any = None,
        root: Path = tree.root,
        home: str | None = "/home/somebody",
        search_path: tuple[str, ...] = (),
        elsewhere: bool = False,
    ) -> World:
        known = programs or {}

        def start(argv: Sequence[str]) -> Done:
            code, text = known.get(" ".join([Path(argv[0]).name, *argv[1:]]), (2, "Invalid combination of arguments\n"))
            return Done(Completed(code=code, out=text.encode(), err=b"", seconds=0.25))

        def start_nvml() -> Done:
            if module is None:
                raise FileNotFoundError
            return Done(Completed(code=0, out=worker_output(module), err=b"", seconds=0.1))

        return World(
            root=root,
            environ=environ or {},
            start=start,
            start_nvml=start_nvml,
            which=lambda name: f"/usr/bin/{name}" if any(key.split()[0] == name for key in known) else None,
            now=lambda: datetime(2026, 11, 29, 12, 0, tzinfo=UTC),
            clock=lambda: 0.0,
            machine="x86_64",
            home=home,
            search_path=search_path,
            elsewhere=elsewhere,
        )

    return make


@pytest.fixture
def fakes() -> types.ModuleType:
    """The helpers of this file, whatever name pytest imports it under."""
    return sys.modules[__name__]
