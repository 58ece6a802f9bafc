"""What is known of the job and of its trouble: variables of launchers, and what a person reports."""

from __future__ import annotations

import re
from typing import Final

from topoadvisor.nccl import consumers
from topoadvisor.numbers import whole
from topoadvisor.rules.scope import Fact, Known, Scope, follow

NOT_SAID: Final = "nobody said"
"""Origin of a fact that stands for nothing having been said: no evidence of anything."""
_RANKS: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
_ALL_RANKS: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
_RDMA_FAILED: Final = re.compile(
    r"ibv_|vendor.err|NET/IB.{0,80}(?:fail|error|(?<!_)timed? ?out)"
    r"|completion.{0,80}\b(?:status|error)[ =]*(?:\w+\()?[1-9]",
    re.I,
)
_SYMPTOMS: Final = {
    "hang": re.compile(r"collective operation timeout|collective operations? (?:have )?(?:failed or )?timed out", re.I),
    "out-of-memory": re.compile(r"cuda (?:failure|error)\W.{0,12}out of memory|OutOfMemoryError", re.I),
}
"""What a message says about the symptom when nobody named it."""
_VIA: Final = re.compile(r"\bvia (NET/(?:IB|Socket)|P2P|SHM)\b")
"""How a channel is joined: `Channel 00/0 : 7[7] -> 8[0] [receive] via NET/Socket/0` of NCCL's INFO log."""
_XIDS: Final = re.compile(
    r"\bxids?\b[^\d\n(]{0,12}(?:\([^)\n]*\)\s*:?\s*)?(\d{1,3}\b(?:\s*(?:,|and|or|/)\s*\d{1,3}\b)*)", re.I
)
"""`Xid (PCI:0000:1b:00): 79, …` of the driver, `previous Xid 145`, and what a person writes: `XIDs 13 and 43`."""
_COPY_ENGINES: Final = {39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)}
_TROUBLE: Final = (
    r"(?:s?xids?\b|fallen off the bus|lost from the bus|ECC errors?|AER errors?|NVLink errors?|watchdog timeouts?"
    r"|NCCL (?:errors?|warnings?|timeouts?)|CUDA OOMs?|OOMs?\b)"
)
_SEEN: Final = r"(?:seen|logged|there|appear|found|report|print|present|show|occur|happen|come|came|involved|the cause)"
_END: Final = r"(?:(?!\b(?:but|except|only|just|however|then)\b)[^.,;:\n])*"
_DENIED: Final = re.compile(
    r"(?:\b(?:no(?! doubt)|neither|nor|never|without any)|(?:\bnot|n't) (?:see|find|get|have|show|log|print|report)\w*)"
    rf"(?: [\w'\"/-]+){{0,2}}? ['\"]?{_TROUBLE}{_END}"
    rf"|\b(?:without|(?:is|was) not|isn't|wasn't|not) (?:an? )?['\"]?{_TROUBLE}{_END}"
    rf"|(?:\bnot|\bnever|n't) (?:fallen off the bus|lost from the bus)"
    rf"|\b{_TROUBLE}[ 0-9,/]*(?:(?:and|or) [0-9]+ ?)?(?:(?:lines?|errors?) )?"
    rf"(?:(?:was|were|is|are|did|does|has|have|had)(?: not|n't) |never )(?:been )?{_SEEN}\w*",
    re.I,
)
"""What a person says was not seen (`no Xid 79 in dmesg`, `Xid 79 was not logged`), to the end of the clause."""
_XID_KINDS: Final = {
    "bus": {79},
    "gsp": {119, 120},
    "reset": {46, 62, 109, 110, 143, 156, 158, 167, 169},
    "nvlink5": {*range(144, 151), 155, 166, 170},
    "nvlink": {74, 136},
    "memory": {48, 63, 64, 92, 94, 95, 140, 157, 160, 161, 168, 171, 172},
    "program": {8, 11, 13, 25, 31, 32, 43, 45, 68, 69, 80, 137} | _COPY_ENGINES,
    "note": {93, 106, 107, 121, 141, *range(162, 166)},
    "recovery": {154},
}
"""Xids by what they mean for a job, what causes the others first (NVIDIA, Xid catalog)."""
_BROKEN: Final = re.compile(r"(last error:)\s*\n\s*", re.I)
"""Where PyTorch breaks NCCL's last error off its heading; what follows belongs to the same sentence."""
_PREFIXES: Final = (("VLLM_", "vLLM"), ("SGLANG_", "SGLang"), ("NVSHMEM_", "NVSHMEM"), ("GGML_", "llama.cpp"))


def gather(node: Scope) -> None:
    """Record the node facts `job.*`; needs `env.*`. What nobody said is empty, 0 or -1, never unknown."""
    for name in ("message", "collective"):
        node.put(f"job.{name}", Known("", NOT_SAID))
    message = node.facts["job.message"]
    if isinstance(message, Known):
        text = _BROKEN.sub(r"\1 ", message.value)
        text = _DENIED.sub("", text).strip(" .,;:\n") if _DENIED.search(text) else text
        node.facts["job.message"] = Known(text, message.origin)
    node.put("job.transport", _transport(node.facts["job.message"]))
    node.put("job.symptom", _symptom(node.facts["job.message"]))
    node.put("job.rdma_failed", follow(lambda text: bool(_RDMA_FAILED.search(text)), node.facts["job.message"]))
    node.put("job.xids", follow(_xids, node.facts["job.message"]))
    node.put("job.xid_kind", follow(_xid_kind, node.facts["job.xids"], node.facts["job.message"]))
    node.put("job.framework", _framework(node))
    node.put("job.llama_cpp", follow(lambda name: consumers.llama_cpp(str(name)), node.facts["job.framework"]))
    local = _number(node, _RANKS)
    node.put("job.local_ranks", local)
    node.put("job.nodes", _nodes(node, local))
    node.put("job.failed_after_seconds", Known(-1, NOT_SAID))
    node.put("job.busbw_gbps", Known(0.0, NOT_SAID))


def _symptom(message: Fact) -> Fact:
    text = message.value if isinstance(message, Known) else ""
    said = next((symptom for symptom, words in _SYMPTOMS.items() if words.search(text)), None)
    return Known(said, "inferred: from the message") if said else Known("", NOT_SAID)


def _transport(message: Fact) -> Fact:
    """By the channel lines in a message; the network counts before what joins GPUs of one machine."""
    ways = _VIA.findall(message.value) if isinstance(message, Known) else []
    way = next((way for way in ways if way.startswith("NET")), ways[0] if ways else "")
    return Known(way, "inferred: from the message") if way else Known("", NOT_SAID)


def _xids(message: str) -> list[str]:
    found = (number for said in _XIDS.findall(message) for number in re.findall(r"\d+", said))
    return list(dict.fromkeys(number.lstrip("0") for number in found if int(number)))


def _xid_kind(xids: list[str], message: str) -> str:
    """The kind of the Xid that explains most; empty without one that is known."""
    fatal = not re.search("non-?fatal", message, re.I) or re.search(r"\bFatal\b|(?i:previous xid)", message)
    kinds = {kind for kind, numbers in _XID_KINDS.items() if set(xids) & set(map(str, numbers))}
    if "nvlink5" in kinds and not fatal:
        kinds = kinds - {"nvlink5"} | {"note"}
    return next((kind for kind in _XID_KINDS if kind in kinds), "")


def _framework(node: Scope) -> Known:
    """By the variables that only one program reads."""
    for name, fact in node.facts.items():
        if name.startswith("env.") and isinstance(fact, Known) and fact.value:
            for prefix, framework in _PREFIXES:
                if name.startswith(f"env.{prefix}"):
                    return Known(framework, fact.origin)
    return Known("", NOT_SAID)


def _number(node: Scope, names: tuple[str, ...]) -> Known:
    for name in names:
        fact = node.facts.get(f"env.{name}")
        number = whole(str(fact.value)) if isinstance(fact, Known) else None
        if isinstance(fact, Known) and number:
            return Known(number, fact.origin)
    return Known(0, NOT_SAID)


def _nodes(node: Scope, local: Known) -> Known:
    told = _number(node, ("SLURM_JOB_NUM_NODES",))
    if told.value:
        return told
    ranks = _number(node, _ALL_RANKS)
    if ranks.value and local.value and ranks.value % local.value == 0:
        return Known(ranks.value // local.value, ranks.origin)
    return told
