"""Two snapshots → what changed between them.

Not compared, because they change by themselves: free memory, a guest's memory, the PCIe generation of an idle GPU,
performance state, replay counters that did not rise, durations, dates, raw text, measurements that scatter, and what a
user assumed.
"""

from __future__ import annotations

from topoadvisor.diff import devices, match, measured, reach, software, surroundings
from topoadvisor.diff.document import Diff
from topoadvisor.diff.ledger import Ledger
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology import graph
from topoadvisor.topology.model import Topology

_PLACEHOLDERS = (
    "UUIDs are placeholders of the redaction, which each capture numbers anew: a GPU that was replaced by one of the "
    "same model does not show, and one that seems to have moved may be another."
)


def compare(
    before: Snapshot,
    after: Snapshot,
    *,
    before_topology: Topology | None = None,
    after_topology: Topology | None = None,
) -> Diff:
    """Compare two captures of one machine; of two machines too, and then say so.

    Topologies that were built already may be given. A capture that is not redacted is redacted first when the other
    one is, so that host names and addresses are compared as far as they can be.
    """
    if before.redacted != after.redacted:
        from topoadvisor.redact import redact

        before, after = (snapshot if snapshot.redacted else redact(snapshot) for snapshot in (before, after))
    old = before_topology or graph.build(before)
    new = after_topology or graph.build(after)
    before, after = reach.comparable(before, after)
    ledger = Ledger()
    matched = match.gpus(before, after)
    devices.compare(before, after, matched, ledger)
    same_nics = surroundings.compare(before, after, matched, ledger)
    software.compare(before, after, ledger)
    labels = {node: f"GPU{old.graph.nodes[node]['index']}" for node in old.gpus}
    labels |= {node: str(old.graph.nodes[node]["label"]) for node in old.nics}
    same_node = {f"gpu:{gpu.index}": f"gpu:{other.index}" for gpu, other in matched.pairs}
    rootless = reach.is_job(before) or reach.is_job(after)
    devices.link_classes(old, new, same_node | same_nics, labels, ledger, rootless=rootless)
    measured.compare(before, after, old, new, matched, ledger)
    changes = ledger.ordered()
    return Diff(
        same=not changes,
        other_machine=match.other_machine(before, after, matched),
        changes=changes,
        unread=ledger.unread,
        groups=ledger.groups(),
        notes=[] if matched.uuids_tell or not any(gpu.uuid for gpu in before.gpus) else [_PLACEHOLDERS],
    )
