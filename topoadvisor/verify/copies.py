"""The child process that measures: `python -m topoadvisor.verify.copies`, a `messages.Job` as JSON on standard input.

It runs alone because a copy over a broken link may never return, or may take the process with it. It prints a `begin`
line before each step, so that a step that hangs can be named. How a step is measured: `flows.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final

import msgspec

from topoadvisor import pci
from topoadvisor.verify import flows, kernels
from topoadvisor.verify.messages import Busy, Job, Line, Look, Measured, version_text

_MUCH_BYTES: Final = 1 << 30
"""A display takes less."""


def _measure(job: Job, say: Callable[[Line], None]) -> int:
    import cupy

    bench: flows.Bench | None = None
    for step in job.steps:
        say(Line(begin=step.name))
        try:
            bench = bench or flows.Bench(cupy, kernels.make(cupy), job.cpus)
            say(Line(measured=bench.measure(step)))
        except flows.Unable as error:
            say(Line(measured=Measured(name=step.name, outcome="skipped", note=str(error))))
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            # Most CUDA errors spoil the process for good: the remaining steps get a new one.
            say(Line(measured=Measured(name=step.name, outcome="error", note=str(error))))
            return 1
    return 0


def _look() -> Look:
    try:
        import cupy
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            return Look(missing="cupy")
        return Look(missing=f"CuPy is installed and cannot be loaded ({_first_line(error)})")
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
        addresses = [pci.normalize(runtime.deviceGetPCIBusId(device)) for device in range(count)]
        versions = version_text(runtime.runtimeGetVersion()), version_text(runtime.driverGetVersion())
    except runtime.CUDARuntimeError as error:
        return Look(cupy=cupy.__version__, missing=f"CUDA does not work here ({_first_line(error)})")
    return Look(
        cupy=cupy.__version__, runtime=versions[0], driver=versions[1], addresses=addresses, busy=_who_else(addresses)
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" =")]
    return lines[0] if lines else type(error).__name__


def _who_else(addresses: list[str]) -> list[Busy]:
    """GPUs with other processes, running kernels or much memory in use, by NVML; empty when NVML does not say.

    A container hides the processes of others and shows their memory.
    """
    busy = []
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        for address in addresses:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
            processes = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
            utilization = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            used = _held_bytes(pynvml, handle)
            if processes or utilization or used >= _MUCH_BYTES:
                busy.append(Busy(address=address, processes=len(processes), utilization=utilization, used_bytes=used))
    return busy


def _held_bytes(pynvml: Any, handle: Any) -> int:
    """GPU memory in use; 0 before driver 510, where the number has the driver's own share in it."""
    with suppress(Exception):
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
    return 0


def main(stdin: BinaryIO, answers: BinaryIO) -> int:
    """Do the job that stands on `stdin`, one JSON line per answer."""
    encoder = msgspec.json.Encoder()

    def say(line: Line) -> None:
        answers.write(encoder.encode(line) + b"\n")
        answers.flush()

    job = msgspec.json.decode(stdin.read(), type=Job)
    if job.task == "look":
        say(Line(look=_look()))
        return 0
    return _measure(job, say)


if __name__ == "__main__":
    # What libraries print to standard output must not mix with the answers.
    private = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.exit(main(sys.stdin.buffer, private))
