"""The report of `prove` as text, as JSON, and as trials for a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topoadvisor.measurements import proven
from topoadvisor.measurements.model import SHARP, Trial, TrialSize
from topoadvisor.numbers import size_text
from topoadvisor.verify.difference import Difference
from topoadvisor.verify.documents import Baseline, Proved, Variant
from topoadvisor.verify.prove import Outcome, Proof
from topoadvisor.verify.rank_messages import Case
from topoadvisor.verify.tables import table

_HEAD = ("collective", "size", "as it is", "with it", "difference", "interval", "result")


@dataclass(frozen=True)
class Setting:
    """Where the proof was made."""

    gpus: Sequence[int]
    nccl_library: str
    driver: str | None
    date: str
    variables: dict[str, str] | None = None
    """NCCL's that are set on both sides; None = not read."""


def to_text(proof: Proof, where: Setting, notes: Sequence[str] = (), *, saved: str | None = None) -> str:
    """A table for each variant, what it costs, and what to keep; `saved` is the file that holds the trials."""
    gpus = ", ".join(f"GPU{index}" for index in where.gpus)
    lines = [f"Settings against the machine as it is, over {gpus}; busbw in GB/s (10⁹ bytes per second)"]
    for outcome in proof.outcomes:
        lines += ["", outcome.arm.name + (f": {outcome.arm.why}" if outcome.arm.why else "")]
        if outcome.failure:
            lines.append(f"  It breaks: {outcome.failure}")
            continue
        rows = [(_row(case, difference), None) for case, difference in outcome.differences]
        lines += [f"  {line}" for line in table(_HEAD, rows, words=(0, 6))[1:]]
        lines += [f"  {line}" for line in _remarks(outcome, proof)]
    lines += ["", *_recommendation(proof, saved, notes)]
    lines += [*proof.notes, *notes]
    if proof.nccl:
        lines.append(
            f"Method: NCCL {proof.nccl} ({where.nccl_library}), driver {where.driver or 'not read'}, one process per "
            f"GPU; {proof.rounds} round{'s' * (proof.rounds != 1)} of fresh processes, baseline and variants in "
            f"turn{_confirming(proof)}; "
            "means over the rounds, Student's interval of the mean ratio, 95 % for all rows together, differences "
            f"below 1 % ignored; {where.date}."
        )
    return "\n".join(lines) + "\n"


def _row(case: Case, difference: Difference) -> tuple[str, ...]:
    return (
        case.collective,
        size_text(case.size_bytes),
        _rate(difference.baseline),
        _rate(difference.variant),
        _percent(difference.mean),
        "-" if difference.low is None else f"{_percent(difference.low)} … {_percent(difference.high)}",
        _result(difference),
    )


def _result(difference: Difference) -> str:
    if difference.verdict != "unknown":
        return difference.verdict
    return "too few rounds" if difference.claimed is None else "not confirmed"


def _confirming(proof: Proof) -> str:
    if not proof.confirming:
        return ""
    return (
        f", and {proof.confirming} more for what looked faster or slower: they decide by themselves, and together with "
        "the others where a winner looked slower without showing it"
    )


def _rate(gbps: float | None) -> str:
    return "-" if gbps is None else f"{gbps:.1f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f} %"


def _remarks(outcome: Outcome, proof: Proof) -> list[str]:
    told = []
    if outcome.ways:
        told.append(f"NCCL then uses {outcome.ways}, and {proof.ways} as it is.")
    if outcome.cost:
        told.append(f"It costs: {outcome.cost}.")
    if outcome.unread:
        told.append(f"NCCL's log does not mention {', '.join(outcome.unread)}: it may not have been read.")
    for case, each in outcome.differences:
        if each.claimed is not None and not each.claim:
            told.append(
                f"{size_text(case.size_bytes)} {case.collective} looked {'faster' if each.claimed > 0 else 'slower'} "
                f"({_percent(each.claimed)}) in the first {proof.rounds} rounds; {_fate(each)}."
            )
    if any(not each.sharp for _, each in outcome.differences if each.verdict == "no difference"):
        told.append(
            f"Where the interval is wider than ±{SHARP:.0%}, a real difference may hide in it; --rounds narrows it."
        )
    return told


def _fate(difference: Difference) -> str:
    if difference.verdict == "no difference":
        return f"{difference.rounds} fresh ones did not confirm it"
    return "there were too few fresh ones to confirm it" if _same_way(difference) else "fresh ones say the opposite"


def _same_way(difference: Difference) -> bool:
    return (difference.claimed or 0.0) * (difference.mean or 0.0) > 0


def _recommendation(proof: Proof, saved: str | None, notes: Sequence[str]) -> list[str]:
    """`notes` may say why a value is not advised already."""
    best = proof.best
    unfit = [
        f"{outcome.arm.name} is {_wins(outcome)}, slower nowhere, and is not advised"
        + ("." if any(why in note for note in notes) else f": {why}.")
        for outcome in proof.outcomes
        if outcome.keep and (why := proof.why_unfit(outcome)) is not None
    ]
    if best is None:
        return unfit or _nothing_to_keep(proof.outcomes)
    lines = [*unfit, f"Keep {best.arm.name}: {_wins(best)}, slower nowhere{_not_excluded(best)}."]
    if best.arm.write_with:
        lines.append(f"The file of the trial is gone; `{best.arm.write_with}` writes it.")
    else:
        after = "" if saved else "After --save FILE, "
        wanted = ",".join(sorted({proven.setting_class(name) for name in best.arm.settings} - {"system"}))
        include = f" --include {wanted}" if wanted else ""
        lines.append(f"{after}`topoadvisor emit nccl-conf {saved or 'FILE'}{include}` writes it with its evidence.")
    if best.ways and all(case.collective != "alltoall" for case, _ in best.differences):
        asked = " ".join(f"{name}={value or ''}" for name, value in best.arm.settings.items())
        lines.append(
            "It sends the traffic other ways, where all pairs at once can lose what a ring gains: before it is set for "
            f"every job, `topoadvisor prove {asked} --collective alltoall`."
        )
    if best.cost:
        lines.append(
            "That is what the collective gains. What a job gains depends on what it computes meanwhile: time its steps."
        )
    return [*lines, *_others(best, proof)]


def _nothing_to_keep(outcomes: Sequence[Outcome]) -> list[str]:
    if len(outcomes) == 1 and (harm := _harm(outcomes[0])):
        arm = outcomes[0].arm
        if None in arm.settings.values():
            return [f"Leave it as it is. With {arm.name}: {harm}."]
        return [f"Do not set {arm.name}: {harm}."]
    verdicts = {each.verdict for outcome in outcomes for _, each in outcome.differences}
    if any(map(_harm, outcomes)) or "faster" in verdicts:
        return ["Set nothing: no variant is faster anywhere without being slower elsewhere, or breaking."]
    if verdicts <= {"unknown"}:
        return ["Nothing can be said: too few rounds are complete."]
    return ["Set nothing: no difference is to be seen."]


def _harm(outcome: Outcome) -> str | None:
    if outcome.failure:
        return f"it breaks, {outcome.failure}"
    return _worst(outcome) if outcome.slower else None


def _others(best: Outcome, proof: Proof) -> list[str]:
    """What else was faster, and why several settings are kept together, or are not."""
    others = [each for each in proof.outcomes if each.keep and each is not best and proof.why_unfit(each) is None]
    alone = [each.arm.name for each in others if len(each.arm.settings) == 1]
    if not alone:
        return []
    if len(best.arm.settings) > 1:
        return [f"Together they gain more than {' or '.join(alone)} alone."]
    lines = [f"Also faster, by less: {', '.join(alone)}."]
    for together in (each for each in proof.outcomes if len(each.arm.settings) > 1 and not proof.why_unfit(each)):
        why = (
            "they break"
            if together.failure
            else f"they are {_worst(together)}"
            if together.slower
            else "they gain no more"
        )
        lines.append(f"Not all together: {why}.")
    return lines


def _wins(outcome: Outcome) -> str:
    return "faster at " + ", ".join(
        f"{size_text(case.size_bytes)} {case.collective} ({_percent(difference.mean)})"
        for case, difference in outcome.faster
    )


def _not_excluded(outcome: Outcome) -> str:
    """The sizes at which a loss may hide in scatter."""
    hidden = [
        f"{size_text(case.size_bytes)} {case.collective} ({_percent(-each.may_lose)})"
        for case, each in outcome.differences
        if each.may_lose is not None
    ]
    return f" that shows; scatter may hide a loss at {', '.join(hidden)}, which --rounds narrows" if hidden else ""


def _worst(outcome: Outcome) -> str:
    case, difference = min(outcome.slower, key=lambda each: each[1].mean or 0.0)
    where = f"{case.collective} of {size_text(case.size_bytes)}"
    return (
        f"slower at {len(outcome.slower)} of {len(outcome.differences)} sizes, {_percent(difference.mean)} for {where}"
    )


def trials(proof: Proof, where: Setting) -> list[Trial]:
    """What is kept in a snapshot: every variant with its evidence."""
    return [
        Trial(
            settings=dict(outcome.arm.settings),
            gpus=list(where.gpus),
            sizes=[_size(case, difference) for case, difference in outcome.differences],
            rounds=proof.rounds,
            keep=outcome is proof.best and outcome.arm.write_with is None,
            cost=outcome.cost,
            failure=outcome.failure,
            nccl=proof.nccl,
            driver=where.driver,
            date=where.date,
            variables=where.variables,
        )
        for outcome in proof.outcomes
    ]


def _size(case: Case, difference: Difference) -> TrialSize:
    return TrialSize(
        collective=case.collective,
        size_bytes=case.size_bytes,
        verdict=difference.verdict,
        baseline_gbps=_rounded(difference.baseline),
        variant_gbps=_rounded(difference.variant),
        difference=difference.mean,
        low=difference.low,
        high=difference.high,
    )


def _rounded(gbps: float | None) -> float | None:
    return None if gbps is None else float(f"{gbps:.6g}")


def document(proof: Proof, where: Setting, notes: Sequence[str] = ()) -> Proved:
    """The same as a JSON document."""
    best = proof.best
    return Proved(
        date=where.date,
        gpus=list(where.gpus),
        nccl_library=where.nccl_library,
        nccl=proof.nccl,
        driver=where.driver,
        rounds=proof.rounds,
        confirming_rounds=proof.confirming,
        interrupted=proof.interrupted,
        baseline=Baseline(channels=proof.channels, transports=proof.ways),
        variants=[
            Variant(
                settings=trial.settings,
                sizes=trial.sizes,
                keep=trial.keep,
                cost=trial.cost,
                failure=trial.failure,
                why=outcome.arm.why,
                channels=outcome.channels,
                transports=outcome.ways or proof.ways,
                not_mentioned=outcome.unread,
            )
            for outcome, trial in zip(proof.outcomes, trials(proof, where), strict=True)
        ],
        keep=None if best is None else dict(best.arm.settings),
        notes=[*proof.notes, *notes],
    )


def nothing(where: Setting, notes: Sequence[str]) -> Proved:
    """The document when no variant was worth trying."""
    return Proved(
        date=where.date,
        gpus=list(where.gpus),
        nccl_library=where.nccl_library,
        nccl=None,
        driver=where.driver,
        rounds=0,
        confirming_rounds=0,
        interrupted=False,
        baseline=None,
        variants=[],
        keep=None,
        notes=list(notes),
    )
