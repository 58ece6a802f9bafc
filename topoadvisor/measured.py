"""What a snapshot's measurements and trials say: lines for the screen, and the settings that won a trial. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from topoadvisor import runs
from topoadvisor.advice import AdvisedSetting, AlreadyRight
from topoadvisor.evidence import Measurement, Trial, TrialSize
from topoadvisor.numbers import size_text
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.model import Topology

_MOST_FAILED = 3
"""Failures that a line names."""

TRIAL = "trial"
"""Stands where a setting names its rule: it comes from `topoadvisor prove`."""


def lines(snapshot: Snapshot, topology: Topology) -> list[str]:
    """One line per kind of link and per collective that was measured, and one per trial. Failures are told first."""
    trials = [_trial(each, snapshot) for each in snapshot.trials]
    found = snapshot.measurements
    return [*_pairs(found, topology), *_hosts(found), *_patterns(found), *_collectives(found), *trials]


def _pairs(measurements: Sequence[Measurement], topology: Topology) -> Iterator[str]:
    by_class: dict[str, list[Measurement]] = {}
    for each in measurements:
        if (ends := runs.pair(each)) is not None:
            pair = topology.find(*(f"gpu:{index}" for index in ends))
            by_class.setdefault((pair.link_class if pair else None) or "?", []).append(each)
    for link_class, found in sorted(by_class.items()):
        told = [
            _failures(found),
            _range(found, runs.PEER, "one way"),
            _range(found, runs.PEER_BOTH, "both ways at once"),
            _range(found, runs.READ, "read by the target"),
            _range(found, runs.KERNEL, "by a kernel"),
            _range(found, runs.STAGED, "with P2P off"),
            _latency(found),
        ]
        if any(told):
            yield f"{link_class} between GPUs: {', '.join(filter(None, told))}{_when(found)}"


def _hosts(measurements: Sequence[Measurement]) -> Iterator[str]:
    found = [each for each in measurements if runs.host_gpu(each) is not None]
    told = [
        _failures(found),
        _range(found, runs.TO_HOST, "one way"),
        _range(found, runs.HOST_BOTH, "both ways at once"),
    ]
    if any(told):
        yield f"GPU to host memory: {', '.join(filter(None, told))}{_when(found)}"


def _patterns(measurements: Sequence[Measurement]) -> Iterator[str]:
    for each in measurements:
        if not runs.at_once(each) or runs.ended(each) == "skipped":
            continue
        told = [_failures([each]), _rate(each)]
        what = "all hops of the ring" if ">" in each.subject else "all pairs of"
        yield f"At once {what} {runs.arrow(each.subject)}: {', '.join(filter(None, told))}{_when([each])}"


def _rate(run: Measurement) -> str:
    if runs.failed(run) or not run.gbps:
        return ""
    slowest = f", {run.slowest_gbps:.1f} GB/s the slowest" if run.slowest_gbps else ""
    return f"{run.gbps:.1f} GB/s together{slowest}"


def _failures(found: Sequence[Measurement]) -> str:
    """`2 FAILED (peer-copy GPU0→GPU1 timeout, …)`; empty without any."""
    broken = [each for each in found if runs.failed(each)]
    if not broken:
        return ""
    named = [f"{each.kind} {runs.arrow(each.subject)} {runs.ended(each)}" for each in broken[:_MOST_FAILED]]
    more = f", and {len(broken) - _MOST_FAILED} more" if len(broken) > _MOST_FAILED else ""
    return f"{len(broken)} FAILED ({', '.join(named)}{more})"


def _collectives(measurements: Sequence[Measurement]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for each in measurements:
        if runs.collective(each):
            groups.setdefault((each.kind, each.subject), []).append(each)
    for (kind, subject), found in sorted(groups.items()):
        broken = [each for each in found if runs.failed(each)]
        at = [size_text(each.size_bytes) for each in broken if each.size_bytes]
        where = f" at {', '.join(at)}" if at else ""
        told = [f"FAILED{where} ({runs.worst(broken)})"] if broken else []
        good = [each for each in found if not runs.failed(each) and each.gbps]
        best = max(good, key=lambda each: each.gbps or 0.0, default=None)
        if best is not None:
            size = f" at {size_text(best.size_bytes)}" if best.size_bytes else ""
            told.append(f"{best.gbps:.1f} GB/s bus bandwidth{size}")
        if told:
            yield f"{kind} over {subject.count(',') + 1} GPUs: {', '.join(told)}{_when([best or broken[0]])}"


def _range(found: Sequence[Measurement], kind: str, words: str) -> str:
    rates = [each.gbps for each in found if each.kind == kind and not runs.failed(each) and each.gbps is not None]
    if not rates:
        return ""
    low, high = min(rates), max(rates)
    return f"{low:.1f} GB/s {words}" if high - low < 0.1 else f"{low:.1f} to {high:.1f} GB/s {words}"


def _latency(found: Sequence[Measurement]) -> str:
    times = [each.latency_us for each in found if each.latency_us is not None and not runs.failed(each)]
    return f"{max(times):.1f} µs for a small copy" if times else ""


def _when(found: Sequence[Measurement]) -> str:
    dates = sorted({each.date[:10] for each in found if each.date})
    return f" ({dates[-1]})" if dates else ""


def words(settings: Mapping[str, str | None]) -> str:
    """`NCCL_MIN_CTAS=32`, `NCCL_ALGO unset`; several with spaces between."""
    return " ".join(f"{name} unset" if value is None else f"{name}={value}" for name, value in settings.items())


def _everywhere(trial: Trial, snapshot: Snapshot) -> bool:
    return set(trial.gpus) == {gpu.index for gpu in snapshot.gpus}


def _over(trial: Trial, snapshot: Snapshot) -> str:
    """The GPUs of a trial that did not take all."""
    return "" if _everywhere(trial, snapshot) else f" over {', '.join(f'GPU{index}' for index in trial.gpus)}"


def _trial(trial: Trial, snapshot: Snapshot) -> str:
    told_of = words(trial.settings) + _over(trial, snapshot)
    date = f" ({trial.date[:10]})" if trial.date else ""
    if trial.failure:
        return f"{told_of}: broke in a trial{date}"
    faster, slower = _at(trial, "faster"), _at(trial, "slower")
    told = [
        f"faster at {_spread(faster)}" if faster else "",
        f"slower at {_spread(slower)}" if slower else "",
        _undecided(trial).removeprefix(", "),
    ]
    outcome = "; ".join(filter(None, told)) or ("no difference" if trial.sizes else "no size was compared")
    return f"{told_of}: {outcome} in a trial of {_rounds(trial)}{date}"


def _rounds(trial: Trial) -> str:
    return f"{trial.rounds} round{'s' * (trial.rounds != 1)}"


def _undecided(trial: Trial) -> str:
    count = len(_at(trial, "unknown"))
    return f", not decided at {count} size{'s' * (count != 1)}" if count else ""


def _at(trial: Trial, verdict: str) -> list[TrialSize]:
    return [size for size in trial.sizes if size.verdict == verdict]


def _spread(sizes: Sequence[TrialSize]) -> str:
    shares = [100 * (each.difference or 0) for each in sizes]
    low, high = min(shares), max(shares)
    by = f"{low:+.1f} %" if high - low < 0.05 else f"{low:+.1f} to {high:+.1f} %"
    return f"{len(sizes)} size{'s' * (len(sizes) != 1)} ({by})"


def proven(
    snapshot: Snapshot, *, version: str | None, taken: Collection[str], gpus: Collection[int]
) -> tuple[list[AdvisedSetting], list[AlreadyRight], list[str]]:
    """Settings of the best trial that won, what of it is in force already, and notes on trials that do not count.

    Trials of several calls can win. The one that gains most is taken; one that holds only a part of its settings says
    nothing more. `taken` are variables that rules decide: a trial does not overrule them. A trial counts for the NCCL
    and driver that it was made with, and over all GPUs or those of the job, by index (`gpus`).
    """
    notes: list[str] = []
    won: list[Trial] = []
    trials = [each for each in snapshot.trials if _everywhere(each, snapshot) or set(each.gpus) == set(gpus)]
    for trial in sorted((each for each in snapshot.trials if each.won), key=_worth, reverse=True):
        told = words(trial.settings)
        if trial not in trials:
            notes.append(f"{told} won a trial{_over(trial, snapshot)} alone: prove it over all GPUs.")
        elif other := _made_elsewhere(trial, snapshot, version):
            notes.append(f"{told} won a trial with {other}: prove it again.")
        elif not set(trial.settings).isdisjoint(taken):
            notes.append(f"{told} won a trial, but rules decide about the variable.")
        elif all(trial.settings != each.settings for each in won):
            won.append(trial)
    settings: list[AdvisedSetting] = []
    right: list[AlreadyRight] = []
    # A combination was kept because it beat its parts, whatever these gained in a trial of another day.
    whole = [each for each in won if not any(each.settings.items() < other.settings.items() for other in won)]
    if not whole:
        return settings, right, notes
    best = whole[0]
    for name, value in best.settings.items():
        _advise(best, name, value, snapshot, settings, right)
    notes += [_passed_over(each, best, trials) for each in whole[1:]]
    return settings, right, notes


def _passed_over(trial: Trial, best: Trial, trials: Sequence[Trial]) -> str:
    """Why a winner is not advised next to a better one."""
    told = f"{words(trial.settings)} won a trial too, and gained no more than {words(best.settings)}"
    if any(best.settings.get(name, value) != value for name, value in trial.settings.items()):
        return f"{told}."
    both = {**best.settings, **trial.settings}
    tried = next((each for each in trials if each.settings == both and not each.won), None)
    if tried is not None:
        return f"{told}; together they were tried and not worth keeping."
    asked = " ".join(f"{name}={value or ''}" for name, value in both.items())
    return f"{told}; together they were not tried: `topoadvisor prove {asked}`."


def _worth(trial: Trial) -> tuple[float, str]:
    """Mean gain over the sizes of the trial, those without a difference counting as none; then the date."""
    gains = [each.difference or 0.0 for each in trial.sizes if each.verdict == "faster"]
    return sum(gains) / max(len(trial.sizes), 1), trial.date or ""


def _made_elsewhere(trial: Trial, snapshot: Snapshot, version: str | None) -> str | None:
    if trial.nccl and version and trial.nccl != version:
        return f"NCCL {trial.nccl}, and this is {version}"
    driver = snapshot.driver.version
    return (
        f"driver {trial.driver}, and this is {driver}" if trial.driver and driver and trial.driver != driver else None
    )


def _advise(
    trial: Trial,
    name: str,
    value: str | None,
    snapshot: Snapshot,
    settings: list[AdvisedSetting],
    right: list[AlreadyRight],
) -> None:
    present = next((each for each in snapshot.settings or () if each.name == name), None)
    if value is not None and present is not None and present.value == value:
        right.append(AlreadyRight(text=f"{name}={value}, which won a trial here, is set already.", rule=TRIAL))
        return
    collectives = ", ".join(dict.fromkeys(size.collective for size in _at(trial, "faster")))
    settings.append(
        AdvisedSetting(
            name=name,
            action="set" if value is not None else "unset",
            setting_class="tuning",
            rule=TRIAL,
            reason=(
                f"measured on this machine{_over(trial, snapshot)}: {collectives} faster at "
                f"{_spread(_at(trial, 'faster'))}, slower at none{_undecided(trial)}, {_rounds(trial)}, "
                f"{(trial.date or 'no date')[:10]}"
            ),
            value=value,
            nccl=f"=={trial.nccl}" if trial.nccl else None,
            cost=trial.cost,
            where=present.place if value is None and present is not None else None,
        )
    )
