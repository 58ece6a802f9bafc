from __future__ import annotations

from collections.abc import Callable

from topoadvisor.rules import describe
from topoadvisor.rules.model import Rule

Rules = Callable[..., Rule]

FULL = {
    "subject": "pair",
    "status": "preview",
    "when": "pair.nvlinks == 0 && " + " && ".join(["pair.p2p.ok"] * 12),
    "applies_when": "gpus.count > 1",
    "not_when": ["vm.guest"],
    "title": "{pair.a} and {pair.b} " + "are far apart " * 10,
    "why": "First paragraph.\n\nSecond paragraph.",
    "evidence": ["pair.link_class"],
    "advice": [
        {"action": "Do something", "command": "true", "safety": "safe"},
        {
            "set": {"NCCL_P2P_LEVEL": "NVL"},
            "class": "workaround",
            "remove_when": "it works",
            "cost": "speed",
            "nccl": ">=2.6",
            "when": "nvlink.any",
        },
        {"unset": ["NCCL_ALGO"], "reason": "not needed"},
    ],
    "right": "All is well.",
    "ask": "nvidia-smi topo -m",
    "verify": "peer-copy",
    "overrides": ["TST002"],
    "references": [{"url": "https://example.org/", "read": "2026-11-29"}],
}


def test_an_explanation_leaves_nothing_out_and_fits_80_columns(rule: Rules) -> None:
    text = describe.explain(rule(**FULL))
    assert max(len(line) for line in text.splitlines()) <= 80
    for part in (
        "TST001 test-rule",
        "(preview)",
        "each pair of GPUs",
        "{pair.a} and {pair.b}",
        "First paragraph.\n\nSecond paragraph.",
        "only if gpus.count > 1",
        "not if vm.guest",
        "pair.link_class: NV#",
        "vm.guest: this is a virtual machine",
        "Do something (safe)",
        "$ true",
        "set NCCL_P2P_LEVEL=NVL",
        "class: workaround",
        "remove when: it works",
        "cost: speed",
        "NCCL: >=2.6",
        "only when: nvlink.any",
        "unset NCCL_ALGO",
        "because: not needed",
        "All is well.",
        "nvidia-smi topo -m",
        "topoadvisor verify: direct and staged copies of each pair",
        "TST002",
        "https://example.org/ (read 2026-11-29)",
    ):
        assert part in text, part


def test_a_small_rule_has_no_empty_sections(rule: Rules) -> None:
    text = describe.explain(rule(when="gpus.count > 1"))
    for heading in ("Advice", "References", "Otherwise", "What would prove"):
        assert heading not in text


def test_a_list_has_one_line_per_rule_by_id(rule: Rules) -> None:
    text = describe.table([rule(id="TST002", name="second"), rule(id="TST001", name="first", status="preview")])
    first, second = text.splitlines()
    assert first.split() == ["TST001", "info", "node", "first", "(preview)"]
    assert second.split() == ["TST002", "info", "node", "second"]
