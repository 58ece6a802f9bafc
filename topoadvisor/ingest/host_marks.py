"""What names a host in a text: prefixes of launchers, headings of grouped output, prompts and commands.

A name that is that of a process, a file or a container is a *label*: two labels may be of one machine.
"""

from __future__ import annotations

import re
from itertools import islice, product
from typing import Final, NamedTuple

from topoadvisor.ingest import split

MAX_HOSTS: Final = 4096
"""Hosts that a list such as `node[1-4096]` may name."""

_NAME = r"[A-Za-z0-9][\w.-]{0,120}"
_NODES = rf"{_NAME}(?:\[[0-9,-]{{1,200}}\][\w.-]{{0,60}}){{0,3}}"
_STAMP = (
    r"(?:\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.,]{0,12}(?:Z|[+-][0-9]{2}:?[0-9]{2})?\]?\s)?"
)
_STAMPED = re.compile(rf"(?=\[?[0-9]{{4}}-){_STAMP}")
_PREFIX = re.compile(
    rf"""[ ]{{0,8}}{_STAMP}(?:
        \[(?P<mpi>[0-9]{{1,6}},[0-9]{{1,6}})\]<std[a-z]{{2,6}}>:?
      | \[(?P<bracket>[^\[\]\s]{{1,200}})\](?::|(?=\s|$))
      | (?P<colon>{_NODES}):(?=\s|$|GPU[ 0-9]|NIC[0-9]|mlx[0-9])
      | (?P<bar>{_NAME})[ ]{{1,40}}\|(?=\s|$)
      | (?P<stern>[a-z0-9][a-z0-9.]{{0,60}}-[a-z0-9.-]{{1,120}})[ ][a-z0-9][a-z0-9-]{{0,62}}(?=\s|$)
      | [A-Z][a-z]{{2}}[ ][ 0-9][0-9][ ][0-9:]{{8}}[ ](?P<syslog>{_NAME})[ ][^\s:]{{1,80}}:
    )[ ]?{_STAMP}""",
    re.X,
)
_CELL = r"(?:X|NV[0-9]{1,3}|C2C|PIX|PXB|PSB|PHB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U)(?!\w)"
_TABLE = re.compile(
    rf"\s*(?:GPU0\s+(?:GPU1|NIC0|mlx|CPU\s?Affinity)|(?P<label>(?:GPU|NIC)[0-9]{{1,3}}|mlx[0-9]+_\w{{1,16}})\s+{_CELL})"
)
_P2P = re.compile(r"\s(?:OK|CNS|GNS|TNS|NS|DR|U)(?!\w)")

_WORDS: Final = frozenset(
    """
    topo topology matrix m mp p2p r w n a p nvlink nvlinks s c e nvidia smi q x l lspci tv vv vvv nn t v lscpu numactl
    numa h ibstat ibv devinfo uname cat gpu gpus cpu cpus pci pcie link links status output stdout stderr out err log
    result results info debug warn warning error fatal trace notice note notes text console bash shell sh cmd command
    legend cuda nccl driver system the this here txt remote
    """.split()  # noqa: SIM905
)
"""What commands and their streams are called: with such a name in front nobody tells a host."""
_PROCESS = re.compile(
    r"[0-9]+(?:,[0-9]+)?|(?:local|global)?[_-]?(?:rank|proc|process|task|default|trainer|pe|pid|tid|thread|gpu|device)"
    r"[_-]?[0-9]+|(?=[a-f]*[0-9])[0-9a-f]{12}|.*\.(?:txt|log|out|err|md)",
    re.I,
)
"""A rank, a container's id or a file."""
_NOBODY = re.compile(
    r"localhost|host(?:name)?|user|root|ubuntu|server|machine|[x*]+|[a-z]{0,4}sh(?:-[0-9.]+)?|base|conda|GPU[0-9]*"
    r"|(?:GPU|NIC|NVMe|CPU|mlx)[0-9]\w*|[0-9:.]*:[0-9:.]*|[0-9]{4}-[0-9]{2}-[0-9]{2}.*",
    re.I,
)
_STEM = re.compile(r"(.*?[a-z])[-_ ]?(?:[0-9]+|(?<=[-_ ])[a-z])", re.I)
_NO_STEM: Final = frozenset(
    """
    v step part test case figure fig table example section run try attempt rank option method question log output update
    edit phase day exp experiment version config configuration setup scenario round trial build link port core root bus
    eth ib bond ens enp item socket answer job task process page chapter appendix issue device
    """.split()  # noqa: SIM905
)

_TOOLS = r"(?:nvidia-smi|lspci|lscpu|numactl|ibstat|ibv_devinfo|uname|lstopo)\b"
_COMMAND = re.compile(rf"(?:sudo\s+)?(?:/\S{{0,80}}/)?(?:{_TOOLS}|cat\s|ssh\s|srun\s|hostname\b)")
_ENVIRONMENT = r"(?:\([^()\n]{1,60}\)\s?){0,3}"
_PROMPT_USER = re.compile(
    rf"[\s>|*`$#┌╭─]{{0,12}}{_ENVIRONMENT}[\[(]?[A-Za-z_][\w.-]{{0,60}}[@㉿](?P<host>{_NAME})"
    r"(?P<rest>[\])]?(?:[\s:-][^$#%>❯\n]{0,200})?\]?\s?[$#%>❯](?:\s+(?P<command>\S.*)|\s*$)|\)-\[[^\]\n]{1,200}\]\s*$)"
)
_PROMPT_HOST = re.compile(
    rf"[\s>]{{0,8}}{_ENVIRONMENT}\[?(?P<host>{_NAME})(?:[\s:]\s?[~/][^\s$#%>]{{0,200}})?\]?\s?[$#%>]\s*"
    rf"(?P<command>{_COMMAND.pattern}.*)"
)
_PROMPT_SIGNS = re.compile(rf"[@㉿$#%>]|{_TOOLS}")
_PROMPT_BARE = re.compile(r"\s{0,8}\$\s+(?P<command>\S.*)")
_LAUNCHER = re.compile(
    r"(?:(?:sudo|time|env|nohup)\s+|[A-Z_]+=\S*\s+){0,4}(?:/\S{0,80}/)?(?P<launcher>ssh|srun|salloc|mpirun|mpiexec|prun"
    r"|pdsh|clush|dsh|pssh|parallel-ssh|kubectl|oc|ansible|salt|xargs|parallel|for|flux|gcloud|bsub|jsrun|aprun)\s"
    r"(?P<rest>.*)"
)
_TARGETS: Final = {
    "ssh": re.compile(rf"\s*(?:-[bcDEeFIiJLlmOopQRSWw]\s*\S+\s+|-[A-Za-z0-9]+\s+)*(?:[\w.-]+@)?(?P<host>{_NAME})\s+\S"),
    "kubectl": re.compile(
        rf".*?\bexec\s+(?:-(?:n|c|-namespace|-container)[ =]\S+\s+|-[-\w=]+\s+)*(?:pod/)?(?P<host>{_NAME})\s"
    ),
    "srun": re.compile(rf"(?:.*?\s)?(?:-w\s*|--nodelist[= ])(?P<host>{_NODES})(?:\s|$)"),
}
_TARGETS["oc"] = _TARGETS["kubectl"]
_TARGETS["pdsh"] = _TARGETS["clush"] = _TARGETS["srun"]

_RULE = re.compile(r"\s{0,8}-{3,}\s*")
_BETWEEN_RULES = re.compile(rf"\s{{0,8}}(?P<name>{_NODES}(?:,{_NODES}){{0,60}})(?P<count> \([0-9]+\))?\s*")
_ANSIBLE = re.compile(rf"(?P<name>{_NAME}) \| [A-Z]{{2,20}}!?(?: \|| =>).{{0,80}}")
_PSSH = re.compile(rf"\[[0-9]{{1,6}}\] [0-9:]{{8}} \[(?:SUCCESS|FAILURE)\] (?P<name>{_NAME}).{{0,80}}")
_SAID = re.compile(rf"(?:host(?:name)?|node(?:name)?|server|machine)\s*[:=]\s*(?P<name>{_NAME})", re.I)
_ALONE = re.compile(rf"(?P<name>{_NODES})")
_KIND = r"(?:node|host|server|machine|worker|box|dgx|hgx|pod)"
_MACHINE = re.compile(
    rf"(?<![\w./-])(?<!numa )(?:(?P<stem>[\w-]{{0,40}}?{_KIND}[-_ #]{{0,3}})(?P<number>[0-9]{{1,5}}"
    r"|(?-i:[A-H]|(?<=[-_])[a-h]))"
    rf"|(?P<ordinal>first|second|third|fourth|other|1st|2nd|3rd|4th)\s(?P<kind>{_KIND}))(?![\w-])",
    re.I,
)
_MOST_SPACES: Final = 5
_WIDEST_HEADING: Final = 200
_DECORATION: Final = " \t#*=-<>~:|`"


class Mark(NamedTuple):
    """Who is named, and how surely a host."""

    name: str
    sure: bool
    """A host; else a label, of which several may be of one machine."""


def anchor(text: str) -> bool:
    """A line that output about a machine has: a row or the header of a table, or the first line of another part."""
    text = text.lstrip("> ") if text.startswith(">") else text
    if _TABLE.match(text):
        return True
    kind = split.begun(text)
    return kind is not None and (kind != "nvlink" or text.lstrip().startswith("GPU "))


def start(text: str) -> str | None:
    """What an output begins with that a machine has once: two writers with the same one are two machines."""
    if (row := _TABLE.match(text)) is not None:
        if row["label"] != "GPU0":
            return None
        return "p2p" if _P2P.search(text, row.end("label")) else "matrix"
    kind = split.begun(text)
    return None if kind in (None, "nvlink") else f"{kind} {text.split(':')[0].strip()}"


def prefix(text: str) -> tuple[str, int] | None:
    """The name in front of a line, empty where only the time stands there, and where what was printed begins.

    None where nothing stands there, and for a device.
    """
    match = _PREFIX.match(text)
    if match is None:
        stamp = _STAMPED.match(text)
        return ("", stamp.end()) if stamp is not None else None
    name = next(
        each for each in (match[group] for group in ("mpi", "bracket", "colon", "bar", "stern", "syslog")) if each
    )
    if name.startswith("pod/"):
        name = name.split("/")[1]
    return (name, match.end()) if not re.match(r"(?:GPU|NIC|NVMe|mlx)[0-9]", name) else None


def named(name: str, *, sure: bool = True) -> Mark | None:
    """The mark of a name; None when it names nobody."""
    words = re.split(r"[-_.\s]", name.lower())
    if _NOBODY.fullmatch(name) or all(word in _WORDS for word in words if word):
        return None
    return Mark(name, sure and not is_process(name))


class Prompt(NamedTuple):
    """A line with a command, or a prompt without one; `mark` is whose output follows, None where it does not say."""

    mark: Mark | None


def prompt(text: str) -> Prompt | None:
    """The prompt that a line is; None for other lines."""
    if len(text) > split.MAX_LENGTH or not _PROMPT_SIGNS.search(text):
        return None
    match = _PROMPT_USER.match(text) or (_PROMPT_HOST.match(text) if _COMMAND.search(text) else None)
    if match is not None:
        launched = _launched((match["command"] or "").strip())
        return launched if launched is not None else Prompt(named(match["host"]))
    if (bare := _PROMPT_BARE.match(text)) is not None:
        return _launched(bare["command"]) or Prompt(None)
    return _launched(text.strip(" \t>#%$")) if re.search(_TOOLS, text) else None


def _launched(command: str) -> Prompt | None:
    """Where a command is run that names another host; None when it runs here."""
    launcher = _LAUNCHER.match(command)
    if launcher is None:
        return None
    pattern = _TARGETS.get(launcher["launcher"])
    target = pattern.match(launcher["rest"]) if pattern is not None else None
    if target is None or len(hosts(target["host"])) != 1:
        return Prompt(None)
    return Prompt(named(target["host"]))


def sure_heading(before: str, text: str, after: str) -> Mark | None:
    """The host, or hosts, of grouped output (dshbak, `clush -b`, ansible, pssh)."""
    if _RULE.fullmatch(before) and _RULE.fullmatch(after) and (match := _BETWEEN_RULES.fullmatch(text)):
        sure = bool(match["count"]) or any(letter.isdecimal() for letter in match["name"])
        return named(match["name"], sure=sure)
    if len(text) > _WIDEST_HEADING:
        return None
    match = _ANSIBLE.fullmatch(text) or _PSSH.fullmatch(text) or _SAID.fullmatch(text.strip(_DECORATION))
    return named(match["name"]) if match is not None else None


def heading(text: str) -> tuple[str, str] | None:
    """The name of a heading and what it has in common with those of other machines: (`node1`, `node`).

    The second is empty for a name without a number, and such a one only counts where something sets it off.
    """
    if len(text) > _WIDEST_HEADING or "```" in text:
        return None
    words = text.strip(_DECORATION)
    if words.count(" ") > _MOST_SPACES:
        return None
    if (machine := _MACHINE.search(words)) is not None:
        kind = (machine["stem"] or machine["kind"]).lower().rstrip("-_ ")
        return f"{kind}{machine['number'] or machine['ordinal']}", kind
    match = _ALONE.fullmatch(words)
    if match is None or named(match["name"]) is None:
        return None
    stem = _STEM.fullmatch(re.sub(r"\[.*?\]", "0", match["name"]).partition(".")[0])
    common = stem[1].lower().strip("-_") if stem is not None else ""
    set_off = common or (text.strip() != words and not text[0].isspace())
    return (match["name"], common) if common not in _NO_STEM and set_off else None


def is_process(name: str) -> bool:
    """A rank, a container or a file."""
    return _PROCESS.fullmatch(name) is not None


def hosts(names: str) -> frozenset[str]:
    """The hosts of a list such as `node[01-03,7],login1`, each without its domain and in lower case."""
    found: set[str] = set()
    for name in re.findall(rf"{_NODES}", names):
        pieces = re.split(r"\[([0-9,-]+)\]", name)
        choices = [_numbers(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        found |= {short("".join(choice)) for choice in islice(product(*choices), MAX_HOSTS)}
    return frozenset(found)


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for run in text.split(","):
        first, _, last = run.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            numbers = range(int(first), min(int(last or first), int(first) + MAX_HOSTS) + 1)
            found += [str(number).zfill(len(first)) for number in numbers]
    return found or [text]


def is_address(name: str) -> bool:
    return re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", name) is not None


def short(name: str) -> str:
    """A host's name to compare by: without its domain, in lower case; an address as it is."""
    return name if is_address(name) else name.partition(".")[0].lower()
