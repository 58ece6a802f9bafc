"""The report of `verify --collectives` as text and as JSON."""

from __future__ import annotations

from topoadvisor.numbers import size_text
from topoadvisor.verify.collectives import CollectiveReport, same_rings, ways_used
from topoadvisor.verify.documents import Collectives, Connection, RingOrder
from topoadvisor.verify.tables import table


def to_text(report: CollectiveReport) -> str:
    """Bus bandwidth by size, what NCCL used against what was predicted, and findings of its log."""
    run = report.run
    lines = [f"NCCL collectives over {_names(report.gpus)}, busbw in GB/s (10⁹ bytes per second)"]
    sizes = list(dict.fromkeys(result.case.size_bytes for result in run.results))
    by_case = {(result.case.collective, result.case.size_bytes): result for result in run.results}
    rows = []
    for collective in dict.fromkeys(result.case.collective for result in run.results):
        cells = []
        for size in sizes:
            result = by_case.get((collective, size))
            cells.append("-" if result is None else "WRONG" if result.wrong else f"{result.busbw:.1f}")
        rows.append(((collective, *cells), None))
    lines += table(("", *map(size_text, sizes)), rows, words=(0,))
    lines.append("")
    lines += _values(report)
    if run.failure:
        failed = report.measurements[-1]
        lines.append(f"Broken off in {failed.kind} of {size_text(failed.size_bytes or 0)}: {run.failure}")
    lines += [
        f"{result.case.collective} reaches {result.busbw:.1f} GB/s at {size_text(result.case.size_bytes)}, where "
        f"NCCL's own model reckons with {rate:.0f}: measure the links with `topoadvisor verify`."
        for result, rate in report.slow
    ]
    lines += _used(report)
    for finding in report.findings:
        lines.append(f"{finding.severity}: {finding.message} [{finding.id}]")
    lines += report.notes
    if run.began:
        batches = len(run.results[0].seconds) if run.results else 0
        lines.append(
            f"Method: NCCL {run.began.nccl} ({report.nccl_library}), one process per GPU, float32, out of place; "
            f"median of {batches} batches, slowest rank; CUDA runtime {run.began.runtime}; {report.date}."
        )
    lines.append(f"Verdict: {report.verdict}")
    return "\n".join(lines) + "\n"


def _values(report: CollectiveReport) -> list[str]:
    results = report.run.results
    if not results:
        return []
    if report.wrong:
        named = ", ".join(f"{each.case.collective} at {size_text(each.case.size_bytes)}" for each in report.wrong)
        return [f"Wrong values: {named}. Do not trust this path, whatever its speed."]
    unchecked = [each for each in results if each.wrong is None]
    if unchecked:
        smallest = min(each.case.size_bytes for each in unchecked)
        return [
            f"All values that were compared are right; from {size_text(smallest)} up none were (CuPy has no NVRTC)."
        ]
    return ["All values are right."]


def _used(report: CollectiveReport) -> list[str]:
    lines = []
    used = ways_used(report)
    if used:
        told = ", ".join(f"{way} on {count} of {used.total()} connections" for way, count in used.most_common())
        predicted = {each.predicted for each in report.transports}
        surprises = [each for each in report.transports if each.as_predicted is False]
        if surprises:
            first = surprises[0]
            told += (
                f"; predicted was {first.predicted} from GPU{first.a} to GPU{first.b}"
                f"{f' and {len(surprises) - 1} more' if len(surprises) > 1 else ''}"
            )
        elif None not in predicted:
            told += ", as predicted"
        lines.append(f"Used: {told}.")
    if report.channels:
        expected = report.expected.channels
        told = (
            ""
            if expected is None
            else ", as predicted"
            if expected == report.channels
            else f"; predicted were {expected}"
        )
        lines.append(f"Channels: {report.channels}{told}.")
    if report.rings:
        rings = "; ".join(f"{' → '.join(map(str, (*order, order[0])))} on {count}" for order, count in report.rings[:6])
        alike = {None: "", True: ", as predicted", False: "; predicted were others (`topoadvisor predict`)"}
        lines.append(f"Rings: {rings}{alike[same_rings(report)]}.")
    return lines


def _names(gpus: list[int]) -> str:
    return ", ".join(f"GPU{index}" for index in gpus)


def document(report: CollectiveReport) -> Collectives:
    """The same as a JSON document."""
    run = report.run
    return Collectives(
        date=report.date,
        gpus=report.gpus,
        nccl=run.began.nccl if run.began else None,
        nccl_library=report.nccl_library,
        verdict=report.verdict,
        interrupted=run.interrupted,
        failure=run.failure,
        channels=report.channels,
        predicted_channels=report.expected.channels,
        rings_as_predicted=same_rings(report),
        rings=[RingOrder(order=order, channels=count) for order, count in report.rings],
        transports=[
            Connection(a=each.a, b=each.b, used=each.used, predicted=each.predicted) for each in report.transports
        ],
        used_bytes=run.used_bytes,
        results=report.measurements,
        findings=report.findings,
        notes=report.notes,
    )
