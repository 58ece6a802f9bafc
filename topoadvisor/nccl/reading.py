"""What NCCL makes of the text of a variable: one entry point over the parsers, each of which has its own module.

Checked against NCCL's source: `src/misc/param.cc` (numbers), `src/include/param/parser_*.h` (the strict parsers),
`src/graph/paths.cc` (levels), `src/graph/tuning.cc` (ALGO, PROTO), `src/misc/utils.cc` (names), `src/debug.cc`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topoadvisor.nccl import choices, levels, selection, versions, words
from topoadvisor.nccl.settings import CONFIGURED, SettingInfo

_INTERFACES: Final = 16
_HCAS: Final = 32
_PARAM_DUMP: Final = "NCCL_PARAM_DUMP_ALL"
_THREADS: Final = ("NCCL_NTHREADS", "NCCL_LL128_NTHREADS")
_BUFFER: Final = "NCCL_BUFFSIZE"
_QUOTES: Final = frozenset("\"'“”‘’„")
_UNDEFINED: Final = -(2**31)
"""`NCCL_CONFIG_UNDEF_INT`: what the communicator asks for."""
_LEAST: Final[Mapping[str, tuple[int, int | None]]] = {
    **dict.fromkeys(("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_NVLS_NCHANNELS"), (1, None)),
    **dict.fromkeys(("NCCL_NCHANNELS_PER_NET_PEER", "NCCL_P2P_MAX_PEERS"), (1, None)),
    **dict.fromkeys(("NCCL_CGA_CLUSTER_SIZE", "NCCL_NUM_RMA_CTX"), (0, None)),
    **dict.fromkeys(("NCCL_COMM_BLOCKING", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_STREAM_ORDERING"), (0, 1)),
    **dict.fromkeys(("NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE"), (0, 1)),
    "NCCL_RMA_EAGER_INIT": (0, 1),
}
"""Least and greatest number that goes into the communicator's configuration (`envConfigOverride` in `src/init.cc`)."""
_NOT_SET: Final = -2
_LARGEST_CLUSTER: Final = 8
_ONLY_ONE_ACTS: Final = frozenset(
    {
        *("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA"),
        *("NCCL_GDRCOPY_ENABLE", "NCCL_RAS_ENABLE", "NCCL_SET_STACK_SIZE"),
    }
)
"""Switches that NCCL compares with 1."""
_AT_LEAST: Final = {"NCCL_PROGRESS_COUNTER_MONITOR_POLL_MS": 50, "NCCL_PROGRESS_COUNTER_MONITOR_STALE_MS": 1000}
"""`src/ras/progress_monitor.cc` of 2.32."""
_SOCKET_THREADS: Final = 16
"""`MAX_THREADS` in `src/transport/net_socket.cc`."""
_WORK_FIFO: Final = str(1 << 20)
_LEAST_BUFFER: Final = 1024
"""Bytes below which the pieces of a ring, half a buffer in whole 512 bytes, are empty, and NCCL divides by 0."""
_PLUGIN_LISTS: Final = {"NCCL_NET_PLUGIN": "2.27.3", "NCCL_GIN_PLUGIN": "2.29.7", "NCCL_RMA_PLUGIN": "2.30.7"}
"""List of plugins → first release in which an empty one is a list, of no plugin; before it counted as not set."""


_READS: Final = re.compile(r"^NCCL reads \S+: ")


@dataclass(frozen=True)
class Reading:
    """What NCCL works with after it read a text."""

    becomes: str | None
    """In NCCL's words; None = the text counts as not set, and the default stays."""
    surprises: tuple[str, ...] = ()
    """What the writer of the text may not expect, one sentence each."""
    hints: tuple[str, ...] = ()
    """What is as usual and still worth knowing, one sentence each."""
    outside: bool = False
    """NCCL reads the number that is written, and it is beyond what makes sense."""
    fatal: bool = False
    """Initialization fails, or the process dies."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The surprises for a sentence that says what the text becomes."""
        return tuple(_READS.sub("", each) for each in self.surprises)


def read(info: SettingInfo, text: str, version: str | None = None) -> Reading | None:
    """What NCCL makes of `NAME=text`; None when the variable is not read by NCCL's parsers.

    `version` is NCCL's; None = the newest known. Raises ValueError when it is no version.
    """
    if version is not None:
        versions.parse(version)
    match info.parser:
        case None:
            return None
        case "int" | "bool-int":
            return number(info, text, version)
        case "strict-bool":
            # This one came with the strict kind, so no release reads it as a number.
            return _words(words.strict_bool(text, None if info.name == _PARAM_DUMP else version))
        case "factor":
            return _words(words.factor(text, version))
        case "level":
            return _level(levels.parse_level(text, version))
        case "merge-level":
            return _level(levels.parse_merge_level(text))
        case "algo":
            return _list(text, choices.algorithms(version), version)
        case "proto":
            return _list(text, choices.PROTOCOLS, version)
        case "ifname" | "hca":
            return _selection(info, text, version)
        case "debug":
            return _words(words.debug_level(text, version))
        case "debug-subsys":
            return _words(words.debug_subsystems(text, version))
        case "debug-levels":
            return _words(words.debug_levels(text, version))
        case "choice" | "choice-exact":
            return _words(words.choice(text, info.values, exact=info.parser == "choice-exact"))
        case "netdevs-policy":
            return _words(words.netdevs_policy(text))
        case "cta-policy":
            return _words(words.cta_policy(text, version))
        case "list" | "path" | "text":
            return _text(info, text, version)


def number(info: SettingInfo, text: str, version: str | None = None) -> Reading:
    """A number as `ncclLoadParam` reads it (`src/misc/param.cc`), and what becomes of it behind that."""
    value = levels.parse_int(text)
    if value is None:
        return Reading(None, ("the number has more than 64 bits, and the default stays",) if text else ())
    surprises: list[str] = []
    hints: list[str] = []
    if text != str(value):
        harmless, why = _why(text)
        (hints if harmless else surprises).append(f"NCCL reads {value}: {why}")
    becomes: str | None = str(value)
    misread = bool(surprises)
    if info.bits and not 0 <= value < 2 ** info.bits[-1] and not _stands_for_something(info, value, version):
        kept = value % 2 ** info.bits[0]
        field = kept % 2 ** info.bits[-1]
        first = f" {kept} in {info.bits[0]} bits, and to" if field != kept != value else ""
        surprises.append(f"{value} is cut to{first} {field} in the {info.bits[-1]} bits of the NIC's field")
        becomes = str(field)
    elif info.name in _THREADS and (threads := _threads(info, value)) != value:
        surprises.append(
            f"NCCL takes {threads} threads: it wants a multiple of 32 from {info.minimum} to {info.maximum}"
        )
        becomes = str(threads)
    elif (acts := _acts(info, value, version)) is not None:
        becomes, why = acts
        surprises.append(why)
    elif (outside := _outside(info, value, version)) is not None:
        surprises.append(outside)
    return Reading(
        becomes,
        tuple(surprises),
        tuple(hints),
        outside=bool(surprises) and not misread,
        fatal=info.name == _BUFFER and 0 <= value < _LEAST_BUFFER,
    )


def _acts(info: SettingInfo, value: int, version: str | None) -> tuple[str | None, str] | None:
    """What NCCL works with instead of a number that it does read, and why; None = with the number itself.

    `src/init.cc` (what the communicator's configuration decides, GDRCOPY_ENABLE, WORK_FIFO_BYTES),
    `src/graph/connect.cc` (channels), `src/graph/paths.cc`, `src/transport/shm.cc`, `src/transport/nvls.cc`,
    `src/transport/net_ib/init.cc`, `src/transport/net_socket.cc` of 2.30.7.
    """
    name = info.name
    if name in _LEAST and info.default_in(version) == CONFIGURED and value != _UNDEFINED:
        least, most = _LEAST[name]
        if name == "NCCL_NUM_RMA_CTX" and version is not None and not versions.at_least(version, "2.30.7"):
            least = 1
        if value < least or (most is not None and value > most):
            wanted = f"it takes {least} and {most} only" if most is not None else f"{least} is the least it takes"
            return None, f"NCCL ignores {value}: {wanted}"
    channels = 64 if version is None or versions.at_least(version, "2.25.1") else 32
    match name:
        case "NCCL_MIN_CTAS" | "NCCL_MAX_CTAS" if value > channels:
            return str(channels), f"NCCL has no more than {channels} channels"
        case "NCCL_MIN_NCHANNELS" | "NCCL_MAX_NCHANNELS" | "NCCL_MIN_NRINGS" | "NCCL_MAX_NRINGS" if value > channels:
            return str(channels), f"NCCL has no more than {channels} channels"
        case "NCCL_MIN_NCHANNELS" | "NCCL_MIN_NRINGS" if value < 0 and value != _NOT_SET:
            return "0", f"NCCL takes 0 for {value}, no minimum at all"
        case "NCCL_MAX_NCHANNELS" | "NCCL_MAX_NRINGS" if value < 1 and value != _NOT_SET:
            return "1", f"NCCL takes 1 for {value}, a single channel"
        case "NCCL_SOCKET_NTHREADS" if value > _SOCKET_THREADS:
            return str(_SOCKET_THREADS), f"NCCL starts no more than {_SOCKET_THREADS} threads"
        case "NCCL_CGA_CLUSTER_SIZE" if value > _LARGEST_CLUSTER:
            return str(_LARGEST_CLUSTER), f"NCCL takes {_LARGEST_CLUSTER} for whatever is above"
        case "NCCL_COLLNET_ENABLE" | "NCCL_COMM_SPLIT_SHARE_RESOURCES" if value not in (0, 1, _UNDEFINED):
            return "0", f"{value} is neither 0 nor 1, and NCCL takes 0"
        case "NCCL_SHM_LOCALITY" if value not in (1, 2):
            return "2", f"{value} is neither 1 nor 2, and NCCL takes 2"
        case "NCCL_NVLS_ENABLE" if value not in (0, 1, 2):
            return "1", f"{value} acts as 1 does: on, without asking the GPU"
        case "NCCL_IB_DISABLE" if value not in (0, 1):
            return "1", f"every number but 0 disables, so {value} does, too"
        case _ if name in _ONLY_ONE_ACTS and value not in (0, 1, -2):
            return "0", f"only 1 acts, and {value} does nothing"
        case _ if name in _AT_LEAST and value < _AT_LEAST[name]:
            return str(_AT_LEAST[name]), f"NCCL takes {_AT_LEAST[name]} for whatever is below"
        case "NCCL_WORK_FIFO_BYTES" if value > 0 and value & (value - 1):
            return _WORK_FIFO, f"{value} is no power of two, and the default is taken"
    return None


def _threads(info: SettingInfo, value: int) -> int:
    """Threads of a block after `getNthreads` (`src/graph/tuning.cc`); not positive = automatic, left as it is."""
    low, high = info.minimum, info.maximum
    if value <= 0 or low is None or high is None:
        return value
    return high if value % 32 else min(max(value, low), high)


def _why(text: str) -> tuple[bool, str]:
    """(whether it is what anybody means by such a text, why NCCL reads another number than the text shows)."""
    rest = text.strip()
    sign = rest[:1] in ("+", "-")
    digits = rest[1:] if sign else rest
    if digits[:1] not in tuple("0123456789"):
        return False, "a text that does not begin with a number is 0"
    if digits[:2].lower() == "0x":
        whole = all(digit in "0123456789abcdef" for digit in digits[2:].lower()) and len(digits) > 2
        return whole, "0x means hexadecimal" if whole else "0x means hexadecimal, and what follows is dropped"
    if len(digits) > 1 and digits[0] == "0":
        return False, "a leading 0 means octal"
    if digits.isascii() and digits.isdigit():
        return True, "blanks and a plus sign do not matter"
    return False, "what follows the digits is dropped, units too"


def _stands_for_something(info: SettingInfo, value: int, version: str | None) -> bool:
    """Whether a number has a meaning of its own; one below 0 only since it is, or was, the default."""
    text = str(value)
    if text not in info.sentinels or value >= 0 or version is None or text not in info.history.values():
        return text in info.sentinels
    return any(default == text and versions.at_least(version, since) for since, default in info.history.items())


def _outside(info: SettingInfo, value: int, version: str | None) -> str | None:
    if _stands_for_something(info, value, version):
        return None
    if info.parser == "bool-int" and value not in (0, 1):
        return f"it is a switch, and {value} is neither 0 nor 1"
    low, high = info.minimum, info.maximum
    if low is not None and value < low:
        return f"{value} is below {low}, the least that makes sense"
    if high is not None and value > high:
        return f"{value} is above {high}, the most that makes sense"
    return None


def _level(found: levels.LevelReading) -> Reading:
    return Reading(found.level.name if found.level is not None else None, (found.surprise,) if found.surprise else ())


def _words(found: words.WordReading) -> Reading:
    return Reading(found.becomes, found.surprises)


def _list(text: str, names: frozenset[str], version: str | None) -> Reading:
    found = choices.read(text, names, version)
    if found.error is not None:
        return Reading(None, (f"{found.error}, and initialization fails",), fatal=True)
    surprises = [f"NCCL does not know `{word}` and drops it" for word in found.ignored]
    if version is not None and not versions.at_least(version, choices.STRICT_SINCE):
        if not any(_allowed(each, names) for each in found.choices):
            return _nothing(names, surprises, version)
    elif not text:
        return Reading(None)
    if names == choices.PROTOCOLS and any(("ll128" in each.names) != each.inverted for each in found.choices):
        surprises.append("it forces LL128 past NCCL's own safety check, and on some paths LL128 corrupts data")
    parts = []
    for each in found.choices:
        allowed = [choices.SPELLING.get(name, name) for name in sorted(_allowed(each, names))]
        if not allowed:
            surprises.append("nothing is left to choose from, and the collective fails")
        parts.append((f"{each.function}: " if each.function else "") + (", ".join(allowed) or "nothing"))
    return Reading("; ".join(parts), tuple(surprises))


def _nothing(names: frozenset[str], surprises: list[str], version: str) -> Reading:
    """A list before 2.24.3 that allows nothing (`ncclTopoTuneModel` in `src/graph/tuning.cc`)."""
    if names != choices.PROTOCOLS and versions.at_least(version, choices.FALLS_BACK_SINCE):
        why = "nothing is left of the list, and NCCL goes on with Ring and Tree unless it has CollNet"
        return Reading("Ring, Tree", (*surprises, why))
    why = "nothing is left to choose from, and every collective fails"
    return Reading("nothing", (*surprises, why), fatal=True)


def _allowed(choice: choices.Choice, names: frozenset[str]) -> frozenset[str]:
    return names - frozenset(choice.names) if choice.inverted else frozenset(choice.names)


def _selection(info: SettingInfo, text: str, version: str | None) -> Reading:
    if not text:
        return Reading(None)
    if info.name == "NCCL_SOCKET_IFNAME" and len(text) == 1:
        return Reading(None, ("NCCL ignores a value of one character",))
    old = version is not None and not versions.at_least(version, "2.18.5")
    most = _INTERFACES if info.parser == "ifname" or old else _HCAS
    found = selection.parse(text, version, most=most)
    surprises = list(selection.surprises(text, version))
    if _QUOTES.intersection(text):
        surprises.append("NCCL removes no quotes: they are part of the names")
    if len(selection.parse(text, version).entries) > most:
        surprises.append(f"NCCL keeps {most} names and drops the rest")
    hints = tuple(selection.hints(text, version))
    names = ", ".join(entry.name + (f" port {entry.port}" if entry.port >= 0 else "") for entry in found.entries)
    how = "exactly " if found.exact else "names that begin with "
    chosen = f"{how}{names}" if found.entries else "every name"
    return Reading(f"all but {chosen}" if found.exclude else chosen, tuple(surprises), hints)


def _text(info: SettingInfo, text: str, version: str | None) -> Reading:
    if not text:
        return _empty(info, version)
    if info.name == "NCCL_IB_ADDR_RANGE":
        return _addresses(text)
    if info.name == "NCCL_THREAD_THRESHOLDS":
        return _thresholds(text)
    surprises = []
    if text != text.strip():
        surprises.append("NCCL trims nothing: blanks around the value are part of it")
    bare = text.strip()
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "\"'":
        surprises.append("NCCL removes no quotes: they are part of the value")
    if info.parser == "path" and bare[:1] in ("~", "$"):
        surprises.append("NCCL expands neither ~ nor variables")
    return Reading(text, tuple(surprises))


def _addresses(text: str) -> Reading:
    """`address/length` (`envIbAddrRange` in `src/transport/net_ib/connect.cc`); blanks are part of the address."""
    address, slash, length = text.partition("/")
    if not slash:
        return Reading(None, ("NCCL ignores an address without / and a length",))
    try:
        family = ipaddress.ip_address(address)
    except ValueError:
        return Reading(None, (f"`{address}` is no address, and NCCL ignores it",))
    bits = re.match(r"\s*[+-]?[0-9]+", length)
    if bits is not None and int(bits[0]) > family.max_prefixlen:
        return Reading(None, (f"{bits[0]} is above {family.max_prefixlen}, and NCCL ignores the address",))
    return Reading(text)


def _thresholds(text: str) -> Reading:
    """Six numbers with blanks between them, of which the first that is none ends the list (`src/graph/tuning.cc`)."""
    kept = re.match(r"(\s*[+-]?[0-9]+(?=\s|$|[^0-9])){0,6}", text, re.A)
    numbers = kept[0].split() if kept is not None else []
    if kept is None or text[kept.end() :].strip():
        why = "NCCL wants blanks between the numbers, no more than six, and drops what follows"
        return Reading(" ".join(numbers) or None, (why,))
    return Reading(" ".join(numbers))


def _empty(info: SettingInfo, version: str | None) -> Reading:
    """What an empty path, text or list is; most count as not set, and NCCL tests these only for being there.

    `src/bootstrap.cc`, `src/misc/utils.cc`, `src/plugin/net.cc`, `src/graph/topo.cc`, `src/graph/search.cc`,
    `src/misc/ibvsymbols.cc`, `src/sym_kernels.cc`, `src/ras/client_support.cc` of 2.30.7.
    """
    since = _PLUGIN_LISTS.get(info.name)
    if since is not None:
        a_list = version is None or versions.at_least(version, since)
        return Reading("none", ("an empty list loads no plugin at all, as `none` does",)) if a_list else Reading(None)
    match info.name:
        case "NCCL_COMM_ID":
            return Reading(None, ("an empty address is no address, and initialization fails",), fatal=True)
        case "NCCL_NET":
            return Reading(None, ("no network has an empty name, and initialization fails",), fatal=True)
        case "NCCL_GRAPH_FILE":
            return Reading(None, ("a file without a name cannot be opened, and initialization fails",), fatal=True)
        case "NCCL_HOSTID":
            return Reading("one identity", ("all hosts get the same identity, and NCCL takes them for one machine",))
        case "NCCL_TOPO_FILE":
            return Reading("no file", ("no file is read, and the usual one of a virtual machine is not looked for",))
        case "NCCL_IBVERBS_LIB":
            why = "the program itself is searched for the library, and RDMA is off unless it is linked in"
            return Reading("the program itself", (why,))
        case "NCCL_SYM_KERNEL":
            return Reading("none", ("no kernel has an empty name, so no symmetric kernel is used",))
        case "NCCL_RAS_ADDR":
            return Reading("no address", ("an empty address is no address, and nobody can ask RAS",))
    return Reading(None)
