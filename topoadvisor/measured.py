"""What a snapshot's measurements and trials say: lines for the screen, and the settings that won a trial. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from topoadvisor.advice import AdvisedSetting, AlreadyRight
from topoadvisor.snapshot import Measurement, Snapshot, Trial, TrialSize
from topoadvisor.topology.model import Topology

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

TRIAL = "trial"
"""Stands where a setting names its rule: it comes from `topoadvisor prove`."""


def lines(snapshot: Snapshot, topology: Topology) -> list[str]:
    """One line per kind of link and per collective that was measured, and one per trial."""
    trials = [_trial(each, snapshot) for each in snapshot.trials]
    return [*_pairs(snapshot, topology), *_hosts(snapshot), *_collectives(snapshot), *trials]


def _pairs(snapshot: Snapshot, topology: Topology) -> Iterator[str]:
    by_class: dict[str, list[Measurement]] = {}
    for each in snapshot.measurements:
        ends = each.subject.replace("<>", ">").split(">")
        if len(ends) == 2 and all(end.startswith("gpu:") for end in ends) and each.kind.startswith(("peer", "staged")):
            pair = topology.find(*ends)
            by_class.setdefault((pair.link_class if pair else None) or "?", []).append(each)
    for link_class, found in sorted(by_class.items()):
        told = [
            _range(found, "peer-copy", "one way"),
            _range(found, "peer-copy-both", "both ways at once"),
            _range(found, "staged-copy", "with P2P off"),
            _latency(found),
        ]
        broken = [each for each in found if each.outcome not in ("ok", "skipped")]
        if broken:
            what = "1 measurement" if len(broken) == 1 else f"{len(broken)} measurements"
            told.append(f"{what} failed ({broken[0].outcome})")
        if any(told):
            yield f"{link_class} between GPUs: {', '.join(filter(None, told))}{_when(found)}"


def _hosts(snapshot: Snapshot) -> Iterator[str]:
    found = [each for each in snapshot.measurements if each.kind in ("host-copy", "host-copy-both")]
    told = [_range(found, "host-copy", "one way"), _range(found, "host-copy-both", "both ways at once")]
    if any(told):
        yield f"GPU to host memory: {', '.join(filter(None, told))}{_when(found)}"


def _collectives(snapshot: Snapshot) -> Iterator[str]:
    best: dict[tuple[str, str], Measurement] = {}
    for each in snapshot.measurements:
        if each.kind in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv") and each.gbps:
            known = best.get((each.kind, each.subject))
            if known is None or (known.gbps or 0) < each.gbps:
                best[each.kind, each.subject] = each
    for (kind, subject), each in sorted(best.items()):
        size = f" at {_size(each.size_bytes)}" if each.size_bytes else ""
        yield f"{kind} over {subject.count(',') + 1} GPUs: {each.gbps:.1f} GB/s bus bandwidth{size}{_when([each])}"


def _size(size_bytes: int) -> str:
    unit, factor = next((each for each in _UNITS if size_bytes >= each[1]), _UNITS[-1])
    return f"{size_bytes / factor:g} {unit}"


def _range(found: Sequence[Measurement], kind: str, words: str) -> str:
    rates = [each.gbps for each in found if each.kind == kind and each.outcome == "ok" and each.gbps is not None]
    if not rates:
        return ""
    low, high = min(rates), max(rates)
    return f"{low:.1f} GB/s {words}" if high - low < 0.1 else f"{low:.1f} to {high:.1f} GB/s {words}"


def _latency(found: Sequence[Measurement]) -> str:
    times = [each.latency_us for each in found if each.latency_us is not None and each.outcome == "ok"]
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
    faster, slower, undecided = (_at(trial, verdict) for verdict in ("faster", "slower", "unknown"))
    told = [
        f"faster at {_spread(faster)}" if faster else "",
        f"slower at {_spread(slower)}" if slower else "",
        f"not decided at {len(undecided)} size{'s' * (len(undecided) != 1)}" if undecided else "",
    ]
    outcome = "; ".join(filter(None, told)) or "no difference"
    return f"{told_of}: {outcome} in a trial of {trial.rounds} rounds{date}"


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
    for trial in sorted((each for each in snapshot.trials if each.keep), key=_worth, reverse=True):
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
    tried = next((each for each in trials if each.settings == both and not each.keep), None)
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
    collectives = ", ".join(dict.fromkeys(size.collective for size in trial.sizes))
    settings.append(
        AdvisedSetting(
            name=name,
            action="set" if value is not None else "unset",
            setting_class="tuning",
            rule=TRIAL,
            reason=(
                f"measured on this machine{_over(trial, snapshot)}: {collectives} faster at "
                f"{_spread(_at(trial, 'faster'))}, slower at none, {trial.rounds} rounds, "
                f"{(trial.date or 'no date')[:10]}"
            ),
            value=value,
            nccl=f"=={trial.nccl}" if trial.nccl else None,
            cost=trial.cost,
            where=present.place if value is None and present is not None else None,
        )
    )
