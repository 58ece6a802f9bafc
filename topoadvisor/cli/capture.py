"""`topoadvisor capture`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topoadvisor.cli.common import file_to_write, readable, some_path

if TYPE_CHECKING:
    from topoadvisor.snapshot import Snapshot


def capture(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=file_to_write,
            help="Write to FILE; - is standard output.",
            show_default="-",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Replace host and user names, UUIDs, serials and network addresses."),
    ] = False,
    root: Annotated[
        Path,
        typer.Option(
            "--root",
            metavar="DIR",
            parser=some_path,
            help="Read files below DIR, e.g. a host's root mounted in a container.",
        ),
    ] = Path("/"),
) -> None:
    """Read this machine's interconnect into one snapshot.

    Changes nothing on the machine and needs no root user.
    """
    from topoadvisor.cli.common import emit_json
    from topoadvisor.collect import capture_live
    from topoadvisor.errors import InputError, NothingDetermined
    from topoadvisor.snapshot import document

    if not root.is_dir():
        raise InputError(f"{root} is no directory", hint="--root takes the mount point of another root file system.")
    to_file = output is not None and str(output) != "-"
    if output is not None and to_file and (output.is_dir() or not output.parent.is_dir()):
        raise InputError(
            f"{output} cannot be written: {'it is a directory' if output.is_dir() else f'there is no {output.parent}'}",
            hint="-o takes the name of a file in a directory that exists.",
        )
    snapshot = capture_live(root)
    if redact:
        from topoadvisor.redact import redact as without_names

        snapshot = without_names(snapshot)
    emit_json(document(snapshot), output)
    if to_file:
        print(_summary(snapshot), file=sys.stderr)
    if not _shows_gpu(snapshot):
        nvml = snapshot.source("nvml")
        raise NothingDetermined(
            f"no GPU was found here: {nvml.reason if nvml and nvml.reason else 'NVML counts none'}",
            hint="The snapshot was written all the same; it says for each source why it is empty.",
        )


def _summary(snapshot: Snapshot) -> str:
    """One line a source: its name, how it went and why."""
    lines = [f"{source.name:<24} {source.status:<8} {source.reason or ''}".rstrip() for source in snapshot.sources]
    return "\n".join(map(readable, lines))


def _shows_gpu(snapshot: Snapshot) -> bool:
    """Whether any source names a GPU, one given away to a guest included."""
    on_bus = any(
        device.vendor == "0x10de" and (device.class_code or "").startswith("0x03") for device in snapshot.pci or []
    )
    return bool(snapshot.gpus) or on_bus or any(matrix.gpus for matrix in snapshot.matrices)
