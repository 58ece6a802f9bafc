"""Does a setting help on this machine? Baseline and variants interleaved, fresh processes each time, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topoadvisor.errors import Broken
from topoadvisor.measurements import proven, variables
from topoadvisor.measurements.model import LEAST, Collective, worth_keeping
from topoadvisor.numbers import size_text
from topoadvisor.verify.difference import Difference, compare, confirm
from topoadvisor.verify.group import Group, Run, Settings, begun
from topoadvisor.verify.rank_messages import Case

DEFAULT_ROUNDS: Final = 8
DEFAULT_SIZES: Final = (64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30)
LIKE: Final[dict[str, tuple[tuple[Collective, ...], tuple[int, ...]]]] = {
    "ddp": (("all_reduce",), (1 << 20, 25 << 20, 100 << 20, 400 << 20)),
    "fsdp": (("all_gather", "reduce_scatter"), (8 << 20, 64 << 20, 256 << 20, 1 << 30)),
    "tp": (("all_reduce",), (16 << 10, 128 << 10, 1 << 20, 8 << 20, 64 << 20)),
    "moe": (("alltoall",), (256 << 10, 2 << 20, 16 << 20, 128 << 20)),
}
"""Collectives and sizes of a kind of job: gradient buckets (25 MiB is PyTorch's default), sharded layers, activations
of tensor parallelism from decoding to prefill, tokens sent to experts."""

Progress = Callable[[int, int, str], None]
Rounds = Mapping[Case, Sequence[tuple[float, float]]]
"""(baseline, variant) of each round, by case."""


@dataclass(frozen=True)
class Arm:
    """One variant: a name, and what it changes in the environment."""

    settings: Settings
    why: str | None = None
    """Why it is tried, where a rule derived it."""
    write_with: str | None = None
    """The command that writes a file that the variant needs, which is gone after the trial."""

    @property
    def name(self) -> str:
        return variables.words(self.settings)


BASELINE: Final = Arm({})


@dataclass
class Seen:
    """What the rounds of one arm brought."""

    rates: dict[int, list[float]] = field(default_factory=dict)
    """Round → busbw by case."""
    first: Run | None = None
    """The round whose log was read."""
    failure: str | None = None
    missed: str | None = None
    """Why a round of it could not begin, the last one's reason."""


@dataclass(frozen=True)
class Batch:
    """Rounds of the baseline and of variants over the same cases."""

    seen: list[Seen]
    """The baseline's first, then one for each variant."""
    broken: str | None
    """Why it ended before all rounds were complete."""
    interrupted: bool

    def pairs(self, arm: int, place: int) -> list[tuple[float, float]]:
        """(baseline, variant) of each round that both completed, for one variant and one case, by number."""
        base, variant = self.seen[0].rates, self.seen[arm + 1].rates
        return [(base[number][place], variant[number][place]) for number in sorted(base.keys() & variant.keys())]


@dataclass(frozen=True)
class Outcome:
    """One variant against the baseline."""

    arm: Arm
    differences: list[tuple[Case, Difference]]
    failure: str | None
    """Why it broke; its rounds are then not compared."""
    channels: int | None
    ways: str | None
    """Transports that NCCL used, where they are others than the baseline's."""
    cost: str | None
    """What it takes that the baseline does not."""
    unread: list[str]
    """Variables that NCCL's log does not mention."""

    @property
    def faster(self) -> list[tuple[Case, Difference]]:
        return [each for each in self.differences if each[1].verdict == "faster"]

    @property
    def slower(self) -> list[tuple[Case, Difference]]:
        return [each for each in self.differences if each[1].verdict == "slower"]

    @property
    def claims(self) -> list[Case]:
        """Where it is faster or slower."""
        return [case for case, difference in self.differences if difference.claim]

    @property
    def open(self) -> list[Case]:
        """What fresh rounds decide: the claims, and where one that wins elsewhere may lose."""
        doubtful = [case for case, difference in self.differences if difference.doubtful] if self.faster else []
        return [*self.claims, *doubtful]

    @property
    def keep(self) -> bool:
        """It wins somewhere and hurts nowhere."""
        return worth_keeping(self.failure, [difference.verdict for _, difference in self.differences])

    @property
    def gain(self) -> float:
        """Mean over all cases, as a share; one without a difference counts as none."""
        return sum(each.mean or 0.0 for _, each in self.faster) / max(len(self.differences), 1)


@dataclass(frozen=True)
class Proof:
    """All variants, and which is worth keeping."""

    outcomes: list[Outcome]
    rounds: int
    """Complete ones."""
    confirming: int
    """Rounds afterwards that what looked faster or slower was put to."""
    baseline: Run
    channels: int | None
    ways: str | None
    interrupted: bool
    broken: str | None
    """Why NCCL failed as it is, before all rounds were complete."""
    notes: list[str]

    @property
    def nccl(self) -> str | None:
        """The NCCL that ran."""
        return self.baseline.began.nccl if self.baseline.began else None

    def why_unfit(self, outcome: Outcome) -> str | None:
        """Why a variant is not advised whatever it gains; None when it may be."""
        return None if outcome.arm.write_with else proven.why_unfit(outcome.arm.settings, self.nccl)

    @property
    def best(self) -> Outcome | None:
        """The variant that gains most among those to keep that may be advised.

        Several settings together are taken when each of them is worth keeping by itself, and together they gain more.
        Where one of them is not, they must gain more than the best alone by what changes a decision.
        """
        fit = [each for each in self.outcomes if each.keep and self.why_unfit(each) is None]
        kept = sorted(fit, key=lambda each: each.gain, reverse=True)
        alone = next((each for each in kept if len(each.arm.settings) == 1), None)
        for together in (each for each in kept if len(each.arm.settings) > 1):
            parts = [name for each in kept if len(each.arm.settings) == 1 for name in each.arm.settings]
            margin = 0.0 if set(together.arm.settings) <= set(parts) else LEAST
            if alone is None or together.gain > alone.gain + margin:
                return together
        return alone

    @property
    def exit_code(self) -> int:
        """0 nothing breaks or hurts, 1 a variant does or NCCL fails as it is, 130 interrupted."""
        if self.interrupted:
            return 130
        return int(self.broken is not None or any(each.failure or each.slower for each in self.outcomes))


def arms_of(settings: Settings) -> list[Arm]:
    """Each setting by itself, and all together when there are several."""
    return with_all_together([Arm({name: value}) for name, value in settings.items()])


def usual_collectives(arms: Sequence[Arm]) -> tuple[Collective, ...]:
    """What is tried where the user names nothing."""
    moving = any(name in proven.MOVES_TRAFFIC for arm in arms for name in arm.settings)
    return ("all_reduce", "alltoall") if moving else ("all_reduce",)


def with_all_together(arms: Sequence[Arm], why: str | None = None) -> list[Arm]:
    """These variants, and one more of all their settings when there are several."""
    if len(arms) < 2:
        return list(arms)
    everything = {name: value for arm in arms for name, value in arm.settings.items()}
    return [*arms, Arm(everything, why, next((arm.write_with for arm in arms if arm.write_with), None))]


def prove(
    group: Group, arms: Sequence[Arm], cases: Sequence[Case], rounds: int, *, progress: Progress = lambda *told: None
) -> Proof:
    """Run the rounds, and as many again for what looks faster or slower, at the sizes that `Outcome.open` names.

    A variant that breaks is dropped, Ctrl-C keeps the complete rounds. Raises Broken when NCCL does not run
    here even as it is, NothingDetermined when it could not be tried.
    """
    first = _batch(group, arms, cases, rounds, progress, read_log=True)
    base = first.seen[0].first
    if base is None:
        raise KeyboardInterrupt
    if first.broken and not first.seen[0].rates:
        raise Broken(f"NCCL does not run here as it is: {first.broken}")
    outcomes = [_outcome(arm, place, first, cases, len(cases) * len(arms)) for place, arm in enumerate(arms)]
    batches = [first]
    claimants = [(place, outcome) for place, outcome in enumerate(outcomes) if outcome.claims]
    if claimants:
        disputed = [case for case in cases if any(case in outcome.open for _, outcome in claimants)]
        again = Batch([Seen() for _ in range(len(claimants) + 1)], None, False)
        if not first.broken and not first.interrupted:
            tried = [outcome.arm for _, outcome in claimants]
            again = _batch(group, tried, disputed, rounds, progress, read_log=False)
            batches.append(again)
        claims = sum(len(outcome.claims) for _, outcome in claimants)
        for number, (place, outcome) in enumerate(claimants):
            fresh = {case: again.pairs(number, disputed.index(case)) for case in outcome.open}
            before = {case: first.pairs(place, cases.index(case)) for case in outcome.open}
            settled = _settled(outcome, before, fresh, claims, len(cases) * len(arms))
            failure = again.seen[number + 1].failure
            outcomes[place] = replace(settled, differences=[], failure=failure) if failure else settled
    interrupted = batches[-1].interrupted
    complete = [len(each.seen[0].rates) for each in batches]
    notes = ["Interrupted: the rounds that were complete are shown."] if interrupted else []
    notes += [
        f"Not all rounds could begin: {missed}."
        for missed in dict.fromkeys(seen.missed for batch in batches for seen in batch.seen if seen.missed)
    ]
    if broken := batches[-1].broken:
        notes.append(f"Broken off in round {sum(complete) + 1}, because NCCL failed as it is: {broken}")
    return Proof(
        outcomes, complete[0], sum(complete[1:]), base, channels_of(base), _ways(base), interrupted, broken, notes
    )


def _batch(
    group: Group, arms: Sequence[Arm], cases: Sequence[Case], rounds: int, progress: Progress, *, read_log: bool
) -> Batch:
    everyone = [BASELINE, *arms]
    seen = [Seen() for _ in everyone]
    done = 0
    try:
        for number in range(rounds):
            alive = [place for place, each in enumerate(seen) if each.failure is None]
            # Each arm is first as often as last, so that what warms up or slows down meets all alike.
            turn = number // 2 % len(alive)
            order = alive[turn:] + alive[:turn]
            for place in order if number % 2 == 0 else order[::-1]:
                name = everyone[place].name or "as it is"
                progress(done, rounds * len(everyone), name if read_log else f"{name}, once more")
                run = group(cases, everyone[place].settings, read_log and number == 0)
                done += 1
                if read_log and done == 1:
                    begun(run)
                _note(seen[place], run, number, rounds)
            if seen[0].failure or all(each.failure for each in seen[1:]):
                break
    except KeyboardInterrupt:
        return Batch(seen, None, True)
    return Batch(seen, seen[0].failure, False)


def _note(seen: Seen, run: Run, number: int, rounds: int) -> None:
    if number == 0:
        seen.first = run
    if run.unable:
        seen.missed = run.failure
        return
    wrong = [result.case for result in run.results if result.wrong]
    told = f"wrong values in {wrong[0].collective} of {size_text(wrong[0].size_bytes)}" if wrong else run.failure
    if told:
        seen.failure = f"{told} (round {number + 1} of {rounds})"
    else:
        seen.rates[number] = [result.busbw for result in run.results]


def _outcome(arm: Arm, place: int, batch: Batch, cases: Sequence[Case], comparisons: int) -> Outcome:
    seen, baseline = batch.seen[place + 1], batch.seen[0]
    differences = [
        (case, compare(batch.pairs(place, number), comparisons=comparisons)) for number, case in enumerate(cases)
    ]
    first, base = seen.first, baseline.first
    ways = _ways(first)
    log = first.log if first else None
    mentioned = {setting.name for setting in log.settings} if log else set(arm.settings)
    return Outcome(
        arm=arm,
        differences=[] if seen.failure else differences,
        failure=seen.failure,
        channels=channels_of(first),
        ways=ways if ways != _ways(base) else None,
        cost=_cost(first, base),
        unread=[name for name, value in arm.settings.items() if value is not None and name not in mentioned],
    )


def _settled(outcome: Outcome, before: Rounds, fresh: Rounds, claims: int, comparisons: int) -> Outcome:
    """The outcome with its claims as fresh rounds leave them, and what was doubtful by all rounds together."""
    differences = []
    for case, each in outcome.differences:
        if each.claim:
            each = confirm(each, fresh[case], claims=claims)
        elif case in fresh:
            each = compare([*before[case], *fresh[case]], comparisons=comparisons)
        differences.append((case, each))
    return replace(outcome, differences=differences)


def channels_of(run: Run | None) -> int | None:
    """Channels for collectives, by NCCL's log."""
    communicators = run.log.communicators if run and run.log else []
    return max((each.channels for each in communicators if each.channels), default=None)


def _ways(run: Run | None) -> str | None:
    if run is None or run.log is None or not run.log.transports:
        return None
    return ", ".join(sorted(run.log.transports))


def _cost(run: Run | None, baseline: Run | None) -> str | None:
    """Extra channels take multiprocessors and memory away from everybody else on the GPU."""
    if run is None or baseline is None:
        return None
    told = []
    channels, before = channels_of(run), channels_of(baseline)
    if channels and before and channels > before:
        of = f" of the GPU's {run.began.processors}" if run.began else ""
        told.append(
            f"{channels} channels instead of {before}: each takes one{of} multiprocessors while a large collective runs"
        )
    if run.used_bytes is not None and baseline.used_bytes is not None:
        more = round((run.used_bytes - baseline.used_bytes) / (1 << 20))
        if more > 0:
            told.append(f"{more} MiB more GPU memory for each communicator")
    return "; ".join(told) or None
