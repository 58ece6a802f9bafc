"""`topoadvisor predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topoadvisor.cli.common import (
    AssumeFileOption,
    AssumeOption,
    FormatOption,
    GpusOption,
    SourceArgument,
    emit_json,
    emit_text,
    gpu_indexes,
    load_snapshot,
    page_width,
    read_text,
    some_path,
    use_color,
)


def predict(
    sources: SourceArgument = None,
    gpus: GpusOption = None,
    nccl_version: Annotated[
        str | None,
        typer.Option("--nccl-version", metavar="V", help="Of this NCCL, 2.27.5 for example.", show_default=False),
    ] = None,
    env: Annotated[
        Path | None,
        typer.Option(
            "--env",
            metavar="FILE",
            parser=some_path,
            help="What sets the variables of the job: NAME=VALUE lines, a job script, nccl.conf, a manifest, …",
            show_default=False,
        ),
    ] = None,
    hosts: Annotated[
        int, typer.Option("--hosts", min=1, max=100_000, metavar="N", help="Hosts like this one in the job.")
    ] = 1,
    format: FormatOption = "text",
    assume: AssumeOption = None,
    assume_file: AssumeFileOption = None,
) -> None:
    """What NCCL will do here, and what each setting changes about it.

    Transports between every two GPUs, ring order, channels and speed as NCCL's own search finds them, GPUDirect RDMA
    for each GPU and network port, NVLS, PXN, MNNVL and LL128, each with its reason. Then what the settings that are in
    force, and those that are advised, do about it.
    """
    from topoadvisor.errors import InputError
    from topoadvisor.nccl import rates, versions
    from topoadvisor.predict import job_environment
    from topoadvisor.predict.predict import predict as foresee

    supplied = list(assume or [])
    if nccl_version is not None:
        try:
            supplied.append(f"nccl.version={versions.release(nccl_version)}")
        except ValueError:
            raise InputError(f"{nccl_version[:40]!r} is no version of NCCL", hint="Write it as 2.28.9.") from None
        if not versions.at_least(nccl_version, rates.OLDEST):
            raise InputError(
                f"NCCL {nccl_version} counts differently from {rates.OLDEST} and newer, which are known here",
                hint=f"To see what a newer one would do: --nccl-version {rates.NEWEST}",
            )
    snapshot = load_snapshot(sources, supplied, assume_file)
    settings, notes = job_environment.read(read_text(env), str(env)) if env is not None else (None, [])
    prediction = foresee(snapshot, gpu_indexes(gpus), settings, notes, hosts)
    if format == "json":
        emit_json(prediction)
        return
    from topoadvisor.render import predict_text

    emit_text(predict_text.render(prediction, width=page_width(), color=use_color()))
