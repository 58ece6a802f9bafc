"""Advice built by hand."""

from __future__ import annotations

from typing import Any

import pytest

from topoadvisor.advice import Advice, AdvisedSetting, NodeSummary


class Make:
    """Makes advice that holds nothing but settings."""

    def setting(self, name: str = "NCCL_SOCKET_IFNAME", value: str | None = "=eth0", **changes: Any) -> AdvisedSetting:
        """A system setting of rule NET001, with the given changes."""
        fields: dict[str, Any] = {
            "name": name,
            "value": value,
            "action": "set",
            "setting_class": "system",
            "rule": "NET001",
            "reason": "the other interfaces lead nowhere",
        }
        return AdvisedSetting(**{**fields, **changes})

    def unset(self, name: str = "NCCL_P2P_DISABLE", **changes: Any) -> AdvisedSetting:
        """A variable to unset, of rule P2P002."""
        fields = {
            "action": "unset",
            "rule": "P2P002",
            "reason": "it switches NVLink off",
            "setting_class": "workaround",
        }
        return self.setting(name, None, **{**fields, **changes})

    def advice(self, *settings: AdvisedSetting, set_nothing: str | None = None) -> Advice:
        return Advice(
            node=NodeSummary(gpus="8x", interconnect="NVLink", host="host"),
            findings=[],
            settings=list(settings),
            set_nothing=set_nothing,
            already_right=[],
            unknown=[],
            plan=None,
            sources=[],
        )


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
