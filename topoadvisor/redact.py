"""Redaction: what names one machine, network or person becomes a stable placeholder; facts stay as they are.

Equal values get equal placeholders everywhere in one snapshot, and a placeholder stays itself, so that redacting twice
changes nothing.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from topoadvisor.snapshot import Snapshot

_VERSION_KEYS: Final = {"schema", "tool", "captured_at", "version", "cuda", "kernel", "bios_version", "product_version"}
"""Dotted numbers here are versions, never addresses."""
_FREE_TEXT_KEYS: Final = {
    "hostname",
    "command_line",
    "banner",
    "reason",
    "text",
    "value",
    "origin",
    "path",
    "note",
    "failure",
}
"""Where a host or a person may be named by a bare word."""
_COMMON_ACCOUNTS: Final = {
    *(
        "root",
        "admin",
        "user",
        "nobody",
        "ubuntu",
        "debian",
        "centos",
        "rocky",
        "fedora",
        "ec2-user",
        "azureuser",
        "opc",
    ),
    *("nvidia", "slurm", "conda", "docker", "jovyan", "coder", "vscode", "runner"),
}
"""Accounts that images bring along; they name nobody."""
_PUBLIC_ASSET_TAGS: Final = {"7783-7084-3265-9085-8269-3286-77", "OracleCloud.com", "Amazon EC2"}
"""Tags that name a cloud, not a machine."""

_MOST_PASSES: Final = 6

_HEX: Final = r"[0-9a-fA-F]"
_UUID: Final = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_PLAIN_UUID: Final = re.compile(rf"(?<!{_HEX}){_UUID}(?!{_HEX})")
_CUT_UUID: Final = re.compile(rf"\b(GPU|MIG)-({_HEX}{{4,8}}(?:-{_HEX}{{1,12}}){{0,4}})(?![\w-])")
"""A GPU may be named by the beginning of its UUID (CUDA_VISIBLE_DEVICES)."""
_MAC: Final = re.compile(rf"(?<![0-9a-fA-F:])(?:{_HEX}{{2}}:){{5,19}}{_HEX}{{2}}(?![0-9a-fA-F:])(?!\.\d)")
_DASHED_MAC: Final = re.compile(rf"(?<![\w-])(?:{_HEX}{{2}}-){{5,6}}{_HEX}{{2}}(?![\w-])")
_NAMED_BY_MAC: Final = re.compile(rf"\b(enx|wlx|ibx|slx|roce?x)({_HEX}{{12,16}})\b")
_GUID: Final = re.compile(rf"(?<![0-9a-fA-F:])(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}(?![0-9a-fA-F:])(?!\.\d)")
_NCCL_ID: Final = re.compile(r'\b(guid|host_hash)="(0x[0-9a-fA-F]{2,16})"')
"""What NCCL's topology XML calls a NIC and a host by."""
_IPV4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)")
_IPV6: Final = re.compile(rf"(?<![\w:.]){_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}}(?![\w:])(?!\.\d)")
_AT_HOST: Final = re.compile(r"(?<![\w.-])([a-z_][\w.-]*)@([A-Za-z0-9][\w.-]*\w)", re.I)
_HOME: Final = re.compile(r"(?<=/)(home|homes|users|Users|scratch)/([^/\s:;,'\")]+)")
_DOMAIN: Final = re.compile(
    r"(?<![\w.@/-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+"
    r"(?:com|net|org|edu|gov|mil|io|ai|dev|cloud|local|internal|lan|corp|intra|localdomain|home|cluster|"
    r"(?:ac|co|edu|gov)\.[a-z]{2}|de|fr|ch|eu|jp|cn|uk|us|ca|nl|se|it|es)(?![\w.-]*\w)",
    re.I,
)
_SERIAL: Final = re.compile(r"(\b(?:serial|asset)(?: ?(?:number|no\.?|tag))?\s*[:=]\s*)(?!N/A\b)(\S+)", re.I)
_NAMED_SERIAL: Final = re.compile(r'(name="[A-Za-z]*(?:Serial|UUID|AssetTag)[A-Za-z]*" value=")([^"\s]+)')
"""As hwloc writes them in its XML."""
_SECRET: Final = re.compile(
    r"((?:^|(?<=\s))[\w.-]*(?:token|secret|passw(?:or)?d|api[-_]?key|credential)[\w.-]*=)(?!hidden\b)(\S+)", re.I
)
"""What a kernel command line may hold for an installer or an agent."""
_ADDRESSED: Final = re.compile(r"(_ADDR|_ADDRESS|_HOST|_HOSTS|_HOSTNAME|_HOSTID|_COMM_ID|_SERVER|_ENDPOINT|NODELIST)$")
"""Settings whose value is a host, perhaps with a port."""
_HOST_PORT: Final = re.compile(r"(?:[a-z]+://)?([A-Za-z0-9][\w.\[\],-]*\w|\w)(?=$|[:/])")


class _Placeholders:
    """One kind of placeholder: hands out the next number for each new value."""

    def __init__(self, make: Callable[[int], str], own: str, document: str) -> None:
        self._make = make
        self._own = re.compile(own, re.I)
        self._known: dict[str, str] = {}
        self._taken = {match.group().lower() for match in self._own.finditer(document)}
        self._next = 0

    def __call__(self, value: str) -> str:
        if self._own.fullmatch(value):
            return value
        key = value.lower()
        if key not in self._known:
            while self._make(self._next).lower() in self._taken:
                self._next += 1
            self._known[key] = self._make(self._next)
            self._next += 1
        return self._known[key]

    def known(self) -> dict[str, str]:
        """Value in lower case → placeholder, so far."""
        return self._known


class _Redactor:
    def __init__(self, document: str) -> None:
        self.uuid = _Placeholders(
            lambda n: f"00000000-0000-4000-8000-{n:012x}", r"00000000-0000-[04]000-[08]000-[0-9a-f]{12}", document
        )
        self.mac = _Placeholders(
            lambda n: f"02:00:00:00:{n >> 8 & 255:02x}:{n & 255:02x}", r"02:00:00:00:\S\S:\S\S", document
        )
        self.guid = _Placeholders(lambda n: f"0200:0000:0000:{n:04x}", r"0200:0000:0000:[0-9a-f]{4}", document)
        self.nccl_id = _Placeholders(lambda n: f"0x0200{n:012x}", r"0x02000000[0-9a-f]{8}", document)
        self.ipv4 = _Placeholders(
            # The networks that RFC 5737 keeps for documentation, then one that is never routed.
            lambda n: f"192.0.2.{n + 1}" if n < 254 else f"240.0.{n >> 8}.{n & 255}",
            r"(?:192\.0\.2|240\.0\.\d+)\.\d+",
            document,
        )
        self.ipv6 = _Placeholders(lambda n: f"2001:db8::{n + 1:x}", r"2001:db8::[0-9a-f]+", document)
        self.host = _Placeholders(lambda n: f"host-{n + 1}", r"\bhost-\d+\b", document)
        self.user = _Placeholders(lambda n: f"user-{n + 1}", r"\buser-\d+\b", document)
        self.serial = _Placeholders(lambda n: f"serial-{n + 1}", r"\bserial-\d+\b", document)
        self.words: dict[str, str] = {}
        """Bare words that name a host or a person, with what stands for them."""

    def learn_host(self, name: str | None) -> None:
        """Remember a host name, the part before its first dot too."""
        if name and name.lower() not in ("localhost", "(none)") and not name.isdigit():
            placeholder = self.host(name)
            if placeholder != name:
                self.words[name] = placeholder
                self.words.setdefault(name.partition(".")[0], placeholder)

    def account(self, name: str) -> str:
        if name.lower() in _COMMON_ACCOUNTS:
            return name
        placeholder = self.user(name)
        if placeholder != name and len(name) > 2:
            self.words[name] = placeholder
        return placeholder

    def anywhere(self, text: str) -> str:
        """Replace what is recognisable by its form alone."""
        text = _PLAIN_UUID.sub(lambda match: self.uuid(match.group()), text)
        text = _CUT_UUID.sub(self._cut_uuid, text)
        text = _MAC.sub(lambda match: self.mac(match.group()), text)
        text = _DASHED_MAC.sub(lambda match: self.mac(match.group()[-17:].replace("-", ":")), text)
        text = _NAMED_BY_MAC.sub(lambda match: match.group(1) + self._bare_mac(match.group(2)), text)
        text = _IPV6.sub(self._ipv6, text)
        text = _GUID.sub(lambda match: self.guid(match.group()), text)
        text = _NCCL_ID.sub(lambda match: f'{match.group(1)}="{self.nccl_id(match.group(2))}"', text)
        text = _IPV4.sub(self._ipv4, text)
        text = _SERIAL.sub(lambda match: match.group(1) + self.serial(match.group(2)), text)
        text = _NAMED_SERIAL.sub(lambda match: match.group(1) + self._named(match.group(2)), text)
        text = _AT_HOST.sub(lambda match: f"{self.account(match.group(1))}@{self._host(match.group(2))}", text)
        return _HOME.sub(lambda match: f"{match.group(1)}/{self.account(match.group(2))}", text)

    def free(self, text: str) -> str:
        """Replace domain names and the words learnt, on top of `anywhere`."""
        text = _SECRET.sub(r"\1hidden", text)
        text = _DOMAIN.sub(lambda match: self._host(match.group()), self.anywhere(text))
        for word in sorted(self.words, key=len, reverse=True):
            text = _word(word).sub(self.words[word], text)
        return text

    def _host(self, name: str) -> str:
        return self.words.get(name) or self.words.get(name.partition(".")[0]) or self.host(name)

    def address_value(self, value: str) -> str:
        """The value of a setting that is a host: `node7:29500` → `host-2:29500`. Host lists become one placeholder."""
        value = self.anywhere(value)
        match = _HOST_PORT.match(value)
        if match is None or re.fullmatch(r"[\d.]+", match.group(1)) or match.group(1).lower() == "localhost":
            return value
        return value[: match.start(1)] + self._host(match.group(1)) + value[match.end(1) :]

    def _named(self, value: str) -> str:
        # A UUID has its placeholder already.
        return value if _PLAIN_UUID.search(value) else self.serial(value)

    def _cut_uuid(self, match: re.Match[str]) -> str:
        cut = match.group(2).lower()
        if cut.startswith("00000000-0000-4000-8000") or not cut.strip("0-"):
            return match.group()
        whole = next((uuid for uuid in self.uuid.known() if uuid.startswith(cut)), cut)
        return f"{match.group(1)}-{self.uuid(whole)}"

    def _bare_mac(self, digits: str) -> str:
        if digits.startswith("02000000"):
            return digits
        return self.mac(":".join(digits[place : place + 2] for place in range(0, len(digits), 2))).replace(":", "")

    def _ipv4(self, match: re.Match[str]) -> str:
        parts = [int(part) for part in match.group().split(".")]
        # Masks, "any" and loopback name nobody; a part above 255 belongs to a version.
        if max(parts) > 255 or parts[0] in (0, 127, 255):
            return match.group()
        return self.ipv4(match.group())

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match.group())
        except ValueError:
            return match.group()
        return match.group() if address.is_loopback or address.is_unspecified else self.ipv6(str(address))

    def _setting(self, name: str, value: str) -> str:
        return self.address_value(value) if _ADDRESSED.search(name) else self.free(value)

    def walk(self, value: Any, key: str = "") -> Any:
        """The same tree of plain values, redacted."""
        if isinstance(value, dict) and key in ("variables", "trials.settings"):
            return {name: item and self._setting(name, item) for name, item in value.items()}
        if isinstance(value, dict) and key == "trials":
            return {
                name: self.walk(item, "trials.settings" if name == "settings" else name) for name, item in value.items()
            }
        if isinstance(value, dict):
            hosted = (
                _ADDRESSED.search(value["name"]) if isinstance(value.get("name"), str) and "origin" in value else None
            )
            return {
                self.anywhere(name): self.address_value(item) if hosted and name == "value" else self.walk(item, name)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self.walk(item, key) for item in value]
        if not isinstance(value, str) or key in _VERSION_KEYS:
            return value
        if key == "chassis_asset_tag":
            return value if value in _PUBLIC_ASSET_TAGS else self.serial(value)
        return self.free(value) if key in _FREE_TEXT_KEYS else self.anywhere(value)


@functools.cache
def _word(word: str) -> re.Pattern[str]:
    """A name that stands alone; a distinctive one (`gpu-17`) is found beside `_`, `-` and in capitals too."""
    if len(word) > 3 and re.search(r"[\d-]", word):
        return re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", re.I)
    return re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])")


def redact(snapshot: Snapshot) -> Snapshot:
    """The snapshot without host and user names, UUIDs, serial numbers, MAC and IP addresses; `redacted` is set.

    GPU UUIDs are numbered in GPU order, the machine itself is the first host.
    """
    plain = msgspec.to_builtins(snapshot)
    redactor = _Redactor(msgspec.json.encode(plain).decode())
    for gpu in snapshot.gpus:
        redactor.anywhere(gpu.uuid or "")
    redactor.learn_host(snapshot.host.hostname)
    # A pass may meet a person whose name stood before as a bare word, or lay bare an address: until nothing changes.
    for _ in range(_MOST_PASSES):
        before, plain = plain, redactor.walk(plain)
        if plain == before:
            break
    return msgspec.convert({**plain, "redacted": True}, Snapshot)
