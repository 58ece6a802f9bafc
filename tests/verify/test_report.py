"""What the report of copies holds a row against."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fake_children import DONE, children, good, measure

from topoadvisor.verify.child import End
from topoadvisor.verify.messages import Job, Line
from topoadvisor.verify.report import document, to_text


def test_without_peer_access_the_row_is_held_to_copies_through_host_memory() -> None:
    def copy(job: Job, hear: Callable[[Line], None]) -> End:
        for step in job.steps:
            hear(Line(begin=step.name))
            seconds = len(step.flows) * step.size_bytes / 38.0e9
            hear(
                Line(
                    measured=msgspec.structs.replace(
                        good(step), flow_seconds=[seconds] * len(step.flows), seconds=[seconds] * 5, peer_access=False
                    )
                )
            )
        return DONE

    report = measure(2, children(copy)[0], link_class="NODE")
    row = next(line for line in to_text(report).splitlines() if line.startswith("GPU0 GPU1"))
    assert "36 to 39" in row
    assert row.endswith("pass")
    pair = document(report).pairs[0]
    assert (pair.expected, pair.expected_staged) == (None, (36.0, 39.0))
