"""Releases of NCCL that are newer than what is known here."""

from __future__ import annotations

from topoadvisor.nccl import rates, settings, versions


def said(version: str | None) -> str | None:
    """What is assumed of a release that is too new to be known, one sentence; None = it is known, or no version."""
    if version is None or not versions.is_version(version) or versions.at_least(rates.NEWEST, version):
        return None
    if versions.at_least(settings.NEWEST, version):
        return (
            f"NCCL {version} is newer than {rates.NEWEST}, the newest whose behaviour is known here: its variables are "
            f"known (up to {settings.NEWEST}), and what it does is taken to be what {rates.NEWEST} does."
        )
    return (
        f"NCCL {version} is newer than anything known here: its variables are taken to be those of {settings.NEWEST}, "
        f"and what it does to be what {rates.NEWEST} does."
    )
