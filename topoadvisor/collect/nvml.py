"""NVML, asked in a process of its own through one guarded door.

A call into the driver may never return, or may take the process with it. So a worker (`python -m
topoadvisor.collect.nvml`) asks, prints one JSON `Piece` a line, and can be killed: what it had said by then is kept.
It asks who the GPUs are first, then about each, then about pairs. Only functions that read are called.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from topoadvisor import pci
from topoadvisor.collect.nvml_door import IMPLAUSIBLE, Door, Emit, Piece, name_slow_calls, shut_down
from topoadvisor.ingest.part import ranges
from topoadvisor.snapshot import CallError, Driver, Fabric, Gpu, NvLink, P2p, PcieLink, Source

NAME: Final = "nvml"

# Own numbers throughout: pynvml's names for them come and go with its releases, and NVML_P2P_CAPS_INDEX_READ is a tuple
# in every one (nvidia-ml-py 11.450 to 13.615).
_P2P_CAPABILITIES: Final = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3, "pci": 4}
_P2P_STATUS: Final = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_ANCESTORS: Final = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_NVLINK_VERSIONS: Final = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
_REMOTE_TYPES: Final[dict[int, Any]] = {0: "gpu", 1: "npu", 2: "switch"}
_FABRIC_STATES: Final[dict[int, Any]] = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
_VIRTUALIZATION: Final[dict[int, Any]] = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_BRANDS: Final = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
_FIELD_NVLINK_SPEED: Final = 164
_FIELDS_NVLINK_SPEED_OLD: Final = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
"""One per link, for drivers before 520."""
_FIELD_C2C_COUNT, _FIELD_C2C_STATUS, _FIELD_C2C_BANDWIDTH = 170, 171, 172
_FABRIC_V2: Final = 0x02000024
_SCOPE_NODE: Final = 0
_REMOTE: Final = "nvmlDeviceGetNvLinkRemotePciInfo"
_MOST_UNREADABLE_LINKS: Final = 4
"""After so many links whose state cannot be read the rest is left alone: the GPU may be gone."""

_MAX_LINKS: Final = 64
"""Our own cap: NVML_NVLINK_MAX_LINKS is a property of the pynvml release, not of the GPU."""
_MAX_GPUS: Final = 256
"""No machine shows more to one operating system; a driver that counts more is not believed."""
_MAX_BYTES: Final = 1 << 50
_MAX_LINE_RATE: Final = 10_000_000
_ALL_ONES: Final = 0xFFFFFFFF
_NO_SUCH_LINK: Final = {"InvalidArgument", "NotSupported"}
_NVLINK_ERRORS: Final = {"replay": 0, "recovery": 1, "crc": 2}
"""Numbers of the counters DL_REPLAY, DL_RECOVERY and DL_CRC_FLIT in nvml.h."""
_NO_COUNTER: Final = {"NotSupported", "FunctionNotFound", "AttributeError", "InvalidArgument"}
_NOT_ASKED: Final = {"NotSupported", "FunctionNotFound", "AttributeError"}
"""Answers that say that there is nothing to ask for."""
_OUTDATED: Final = {"FunctionNotFound", "AttributeError", "ArgumentVersionMismatch"}
"""Answers after which an older form of the same question may do."""


class _FabricInfoV1(ctypes.Structure):
    """`nvmlGpuFabricInfo_t` of drivers 525 to 545, 28 bytes. pynvml's own layout is wrong in most of its releases."""

    _fields_ = (
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint32),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
    )


class _FabricInfo(ctypes.Structure):
    """`nvmlGpuFabricInfo_v2_t`, 36 bytes. pynvml's own layout is wrong in most of its releases."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint32),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("health_mask", ctypes.c_uint32),
    )


def read(nvml: Any, emit: Emit) -> None:
    """Ask the module `nvml` (pynvml, or one like it) everything and hand each answer to `emit`; ends with `end`."""
    started = time.monotonic()
    door = Door(nvml, emit)
    answered = threading.Event()
    threading.Thread(target=name_slow_calls, args=(door, answered), daemon=True).start()
    emit(Piece(asking="the driver"))
    door.under_way = ("nvmlInit", None, started)
    refusal = _initialise(nvml)
    door.under_way = None
    if refusal is None:
        counted = door.guard("reading", lambda: _read_all(door))
        reason = _summary(door.incomplete)
        if counted is False and reason is None:
            reason = f"nvmlDeviceGetCount failed ({door.last_error})"
        refusal = Source(
            name=NAME, status="ok" if reason is None else "partial" if counted else "failed", reason=reason
        )
        shut_down(door)
    answered.set()
    emit(Piece(end=msgspec.structs.replace(refusal, seconds=round(time.monotonic() - started, 4))))


def _initialise(nvml: Any) -> Source | None:
    """Start NVML; the source's final status when that fails."""
    try:
        nvml.nvmlInit()
    except Exception as error:
        name = type(error).__name__.removeprefix("NVMLError_")
        context = error.__context__
        code = getattr(error, "value", None)
        status: Any = "failed"
        match name:
            case "LibraryNotFound" if isinstance(context, OSError) and "No such file" not in str(context):
                reason = f"the NVML library cannot be loaded: {context}"
            case "LibraryNotFound":
                status, reason = (
                    "absent",
                    "there is no NVML library (libnvidia-ml.so.1) here: no NVIDIA driver is installed",
                )
            case "DriverNotLoaded":
                reason = "the NVIDIA kernel driver is not loaded"
            case "LibRmVersionMismatch":
                reason = "the NVIDIA library and the loaded kernel driver have different versions; a reboot cures it"
            case "NoPermission":
                reason = "this user may not talk to the NVIDIA driver"
            case _:
                reason = f"NVML did not start: {name}" + (f" (code {code})" if isinstance(code, int) else "")
        error_list = [CallError(call="nvmlInit", error=name, code=code if isinstance(code, int) else None)]
        return Source(name=NAME, status=status, reason=reason, errors=error_list)
    return None


def _summary(errors: list[CallError]) -> str | None:
    if not errors:
        return None
    first = errors[0]
    about = f" about {first.subject}" if first.subject else ""
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{first.call}{about} failed ({first.error}){more}"


def _read_all(door: Door) -> bool:
    """Read driver, GPUs and pairs; False when not even the number of GPUs could be had."""
    cuda = door.number("nvmlSystemGetCudaDriverVersion", subject="driver", within=(1000, 999_990), unset=(0,))
    version = door.text("nvmlSystemGetDriverVersion")
    confidential = _confidential(door)
    door.emit(
        Piece(
            driver=Driver(
                version=version,
                cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
                confidential=confidential,
            )
        )
    )
    count = door.ask("nvmlDeviceGetCount")
    if count is None:
        return False
    if not 0 <= count <= _MAX_GPUS:
        door.note(CallError(call="nvmlDeviceGetCount", error=IMPLAUSIBLE))
        count = _count_by_asking(door)
    door.emit(Piece(count=count))
    handles: dict[int, Any] = {}
    known: dict[int, Gpu] = {}
    for index in range(count):
        subject = f"gpu:{index}"
        door.emit(Piece(asking=subject))
        handle = door.ask("nvmlDeviceGetHandleByIndex", index, subject=subject)
        if handle is not None:
            handles[index] = handle
            known[index] = door.guard("reading", partial(_identify, door, handle, index), subject) or Gpu(index=index)
            door.emit(Piece(gpu=known[index]))
    for index, gpu in known.items():
        subject = f"gpu:{index}"
        door.emit(Piece(asking=subject))
        for part in (_read_state, _read_links):
            if subject not in door.lost:
                more = door.guard("reading", partial(part, door, handles[index], gpu, subject), subject)
                gpu = more or gpu
                door.emit(Piece(gpu=gpu))
        if subject in door.lost:
            del handles[index]
    for a, handle_a in handles.items():
        for b, handle_b in handles.items():
            if a != b:
                _read_pair(door, (a, handle_a), (b, handle_b))
    return True


def _confidential(door: Door) -> Any:
    """Confidential computing, `on` or `off`; None when the driver does not say, as those before 535."""
    state = door.ask("nvmlSystemGetConfComputeState", subject="driver", end=_NOT_ASKED)
    if state is None:
        return "off" if door.last_error == "NotSupported" else None
    return {0: "off", 1: "on"}.get(state.ccFeature)


def _count_by_asking(door: Door) -> int:
    """How many GPUs answer when their number cannot be believed: handles from 0 up to the first that fails."""
    for index in range(_MAX_GPUS):
        door.ask("nvmlDeviceGetHandleByIndex", index, end={"InvalidArgument"})
        if door.last_error is not None:
            return index
    return _MAX_GPUS


def _identify(door: Door, handle: Any, index: int) -> Gpu:
    """Who a GPU is: asked about all of them before anything that may take long."""
    subject = f"gpu:{index}"
    name = door.text("nvmlDeviceGetName", handle, subject=subject)
    uuid = None if subject in door.lost else door.text("nvmlDeviceGetUUID", handle, subject=subject)
    info = None if subject in door.lost else door.ask("nvmlDeviceGetPciInfo", handle, subject=subject)
    device = None if info is None or info.pciDeviceId == _ALL_ONES else (info.pciDeviceId >> 16) & 0xFFFF
    return Gpu(
        index=index,
        name=name,
        uuid=uuid,
        address=None if info is None else _address(door, info, subject, "nvmlDeviceGetPciInfo"),
        pci_device=None if device is None else f"0x{device:04x}",
    )


def _read_state(door: Door, handle: Any, gpu: Gpu, subject: str) -> Gpu:
    """What a GPU is and how it sits in the machine, added to who it is."""

    def ask(call: str, *arguments: Any) -> Any:
        return None if subject in door.lost else door.ask(call, handle, *arguments, subject=subject)

    def number(call: str, most: int, least: int = 0, unset: Iterable[int] = ()) -> int | None:
        return door.plausible(call, ask(call), subject, (least, most), unset)

    capability = ask("nvmlDeviceGetCudaComputeCapability")
    if capability is not None and not (0 < capability[0] < 100 and 0 <= capability[1] < 10):
        door.note(CallError(call="nvmlDeviceGetCudaComputeCapability", error=IMPLAUSIBLE, subject=subject))
        capability = None
    memory = ask("nvmlDeviceGetMemoryInfo")
    bar1 = ask("nvmlDeviceGetBAR1MemoryInfo")
    pcie = PcieLink(
        current_gen=number("nvmlDeviceGetCurrPcieLinkGeneration", 9, unset=(0,)),
        max_gen=number("nvmlDeviceGetMaxPcieLinkGeneration", 9, unset=(0,)),
        device_max_gen=number("nvmlDeviceGetGpuMaxPcieLinkGeneration", 9, unset=(0,)),
        current_width=number("nvmlDeviceGetCurrPcieLinkWidth", 32, unset=(0,)),
        max_width=number("nvmlDeviceGetMaxPcieLinkWidth", 32, unset=(0,)),
    )
    nodes = _bits(ask("nvmlDeviceGetMemoryAffinity", 16, _SCOPE_NODE))
    words = max(16, ((os.cpu_count() or 1) + 63) // 64)
    cpus = _bits(ask("nvmlDeviceGetCpuAffinity", words))
    mig = ask("nvmlDeviceGetMigMode")
    if mig is None and door.last_error == "NotSupported":
        mig = [0, 0]
    return msgspec.structs.replace(
        gpu,
        brand=_BRANDS.get(ask("nvmlDeviceGetBrand")),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        memory_bytes=memory and door.plausible("nvmlDeviceGetMemoryInfo", memory.total, subject, (0, _MAX_BYTES)),
        bar1_bytes=bar1 and door.plausible("nvmlDeviceGetBAR1MemoryInfo", bar1.bar1Total, subject, (0, _MAX_BYTES)),
        pcie=None if pcie == PcieLink() else pcie,
        # Several nodes at once (a hypervisor that does not know) name none.
        numa_node=nodes[0] if len(nodes) == 1 else None,
        memory_numa_node=number("nvmlDeviceGetNumaNodeId", 0xFFFF, unset=(-1, _ALL_ONES)),
        cpu_affinity=ranges(cpus) if cpus else None,
        virtualization=_VIRTUALIZATION.get(ask("nvmlDeviceGetVirtualizationMode")),
        performance_state=number("nvmlDeviceGetPerformanceState", 15, unset=(32,)),
        pcie_replays=number("nvmlDeviceGetPcieReplayCounter", _ALL_ONES - 1),
        mig=None if mig is None or mig[0] not in (0, 1) else bool(mig[0]),
    )


def _read_links(door: Door, handle: Any, gpu: Gpu, subject: str) -> Gpu:
    """What joins a GPU to others, added to the rest; nothing of it when the GPU is lost on the way."""
    links = _read_nvlinks(door, handle, subject)
    return msgspec.structs.replace(
        gpu,
        nvlinks=None if subject in door.lost else links,
        c2c_gbps=None if subject in door.lost else _read_c2c(door, handle, subject),
        fabric=None if subject in door.lost else _read_fabric(door, handle, subject),
    )


def _address(door: Door, info: Any, subject: str, call: str) -> str | None:
    """The normalised address, from the numbers; only the function is in the text alone."""
    text = door.guard("nvmlPciInfo_t.busId", lambda: info.busId, subject)
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    function = text.rpartition(".")[2] if isinstance(text, str) and "." in text else "0"
    try:
        return pci.normalize(f"{info.domain:x}:{info.bus:x}:{info.device:x}.{function}")
    except ValueError:
        door.note(CallError(call=call, error=IMPLAUSIBLE, subject=subject))
        return None


def _read_nvlinks(door: Door, handle: Any, subject: str) -> list[NvLink] | None:
    """All links of a GPU: asked until NVML says that there is no such link. Empty = the GPU has none."""
    links: list[NvLink] = []
    for link in range(_MAX_LINKS):
        where = f"{subject}/link:{link}"
        end = _NO_SUCH_LINK if link else ()
        state = door.ask("nvmlDeviceGetNvLinkState", handle, link, subject=where, end=end)
        if door.last_error in _NO_SUCH_LINK:
            break
        state = door.plausible("nvmlDeviceGetNvLinkState", state, where, (0, 1))
        if state is None:
            # Neither a link nor the end of them. Without any link known there is no telling where they end.
            if not links:
                return None
            links.append(NvLink(link=link, active=None))
            if sum(each.active is None for each in links) > _MOST_UNREADABLE_LINKS:
                break
            continue
        links.append(_read_nvlink(door, handle, link, where, active=bool(state)))
    speeds = _read_nvlink_speeds(door, handle, len(links), subject) if links else []
    return [msgspec.structs.replace(link, raw_mbps=speed) for link, speed in zip(links, speeds, strict=True)]


def _read_nvlink(door: Door, handle: Any, link: int, where: str, *, active: bool) -> NvLink:
    version = door.ask("nvmlDeviceGetNvLinkVersion", handle, link, subject=where)
    generation = None if version is None else _NVLINK_VERSIONS.get(version)
    if not active:
        return NvLink(link=link, active=False, generation=generation)
    errors = {name: _errors(door, handle, link, number, where) for name, number in _NVLINK_ERRORS.items()}
    kind = door.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link, subject=where)
    info = door.ask(_REMOTE, handle, link, subject=where)
    hidden = info is not None and info.domain == _ALL_ONES
    return NvLink(
        link=link,
        active=True,
        generation=generation,
        remote_type=None if kind is None else _REMOTE_TYPES.get(kind),
        remote_address=None if info is None or hidden else _address(door, info, where, _REMOTE),
        remote_hidden=hidden,
        replay_errors=errors["replay"],
        recovery_errors=errors["recovery"],
        crc_errors=errors["crc"],
    )


def _errors(door: Door, handle: Any, link: int, counter: int, where: str) -> int | None:
    """One error counter of a link; newer generations and virtual GPUs have none of this form."""
    answer = door.ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter, subject=where, end=_NO_COUNTER)
    number = getattr(answer, "value", answer)
    return number if isinstance(number, int) and 0 <= number < _ALL_ONES else None


def _read_nvlink_speeds(door: Door, handle: Any, count: int, subject: str) -> list[int | None]:
    speeds = door.fields(handle, [(_FIELD_NVLINK_SPEED, link) for link in range(count)], subject)
    if not any(speeds):
        old = door.fields(handle, [(number, 0) for number in _FIELDS_NVLINK_SPEED_OLD[:count]], subject)
        speeds = [*old, *[None] * (count - len(old))]
    return [int(speed) if speed and 0 < speed < _MAX_LINE_RATE else None for speed in speeds]


def _read_c2c(door: Door, handle: Any, subject: str) -> float | None:
    """GB/s per direction of all working chip-to-chip links together; 0 = there are none, None = not known."""
    (count,) = door.fields(handle, [(_FIELD_C2C_COUNT, 0)], subject)
    if count is None:
        mode = door.ask("nvmlDeviceGetC2cModeInfoV", handle, subject=subject)
        return 0.0 if mode is not None and not mode.isC2cEnabled else None
    links = range(min(int(count), _MAX_LINKS))
    if not links:
        return 0.0
    status = door.fields(handle, [(_FIELD_C2C_STATUS, link) for link in links], subject)
    rates = door.fields(handle, [(_FIELD_C2C_BANDWIDTH, link) for link in links], subject)
    working = [rate for up, rate in zip(status, rates, strict=True) if up]
    # The driver states MB/s per link and direction, as NCCL's own C2C bandwidth (bw × count / 1000) takes it.
    if None in (*status, *working) or any(not 0 <= (rate or 0) < _MAX_LINE_RATE for rate in working):
        return None
    return round(sum(rate or 0 for rate in working) / 1000, 3)


def _read_fabric(door: Door, handle: Any, subject: str) -> Fabric | None:
    info: _FabricInfo | _FabricInfoV1 = _FabricInfo(version=_FABRIC_V2)
    door.ask("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info), subject=subject)
    if door.last_error in _OUTDATED:
        info = _FabricInfoV1()
        door.ask("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info), subject=subject)
    if door.last_error is not None:
        return None
    uuid = bytes(info.cluster_uuid).hex()
    return Fabric(
        # One byte and padding in the header.
        state=_FABRIC_STATES.get(info.state & 0xFF),
        status=info.status,
        cluster_uuid=f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}" if uuid.strip("0") else None,
        clique=info.clique,
        health_mask=info.health_mask if isinstance(info, _FabricInfo) else None,
    )


def _read_pair(door: Door, a: tuple[int, Any], b: tuple[int, Any]) -> None:
    subject = f"gpu:{a[0]}>gpu:{b[0]}"
    door.emit(Piece(asking=subject))
    ancestor = door.ask("nvmlDeviceGetTopologyCommonAncestor", a[1], b[1], subject=subject)
    status: dict[str, Any] = {}
    for capability, number in _P2P_CAPABILITIES.items():
        answer = door.ask("nvmlDeviceGetP2PStatus", a[1], b[1], number, subject=subject)
        status[capability] = None if answer is None else _P2P_STATUS.get(answer, "U")
    door.emit(
        Piece(p2p=P2p(a=a[0], b=b[0], common_ancestor=None if ancestor is None else _ANCESTORS.get(ancestor), **status))
    )


def _bits(words: Iterable[int] | None) -> list[int]:
    """Numbers of the bits set in 64-bit words, lowest first."""
    return (
        []
        if words is None
        else [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    )


@dataclass(frozen=True)
class Reading:
    """What the worker said."""

    source: Source
    driver: Driver
    gpus: list[Gpu]
    p2p: list[P2p] | None


def gather(pieces: Iterable[Piece], *, cut: str | None = None, seconds: float | None = None) -> Reading:
    """Put the pieces together. `cut` says why they end early, when they do."""
    asking, count, driver, end = "the driver", 0, Driver(), None
    gpus: dict[int, Gpu] = {}
    pairs: list[P2p] = []
    errors: list[CallError] = []
    for piece in pieces:
        asking, count, driver = piece.asking or asking, piece.count or count, piece.driver or driver
        end = piece.end or end
        if piece.gpu is not None:
            gpus[piece.gpu.index] = piece.gpu
        if piece.p2p is not None:
            pairs.append(piece.p2p)
        if piece.error is not None:
            errors.append(piece.error)
    if end is None:
        reason = f"{cut or 'the process that asks NVML ended early'}, while asking about {asking}"
        status: Any = "partial" if gpus else "failed"
        end = Source(name=NAME, status=status, reason=reason, seconds=None if seconds is None else round(seconds, 4))
    return Reading(
        source=msgspec.structs.replace(end, errors=[*errors, *end.errors]),
        driver=driver,
        # A GPU that was counted and never described exists all the same.
        gpus=[gpus.get(index) or Gpu(index=index) for index in range(count)],
        p2p=pairs or ([] if end.status in ("ok", "partial") and count < 2 else None),
    )


def parse_pieces(output: bytes) -> list[Piece]:
    """The worker's lines; one that was cut, or that something else printed, is skipped."""
    pieces = []
    decoder = msgspec.json.Decoder(Piece)
    for line in output.splitlines():
        try:
            pieces.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return pieces


def main() -> None:
    """The worker: one JSON piece a line on standard output."""
    # Libraries may print to descriptor 1; the pieces keep a private copy of it.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    encoder = msgspec.json.Encoder()

    lock = threading.Lock()

    def emit(piece: Piece) -> None:
        with lock:
            output.write(encoder.encode(piece) + b"\n")

    try:
        # An old `pynvml` package beside nvidia-ml-py warns on import, even as an error under -W error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pynvml
    except ImportError:
        emit(Piece(end=Source(name=NAME, status="absent", reason="the Python module pynvml (nvidia-ml-py) is missing")))
        sys.exit()
    read(pynvml, emit)
    # Not through the interpreter's own end: a thread may still wait for a shutdown that never returns.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
