"""What a person reports is answered: every symptom, on every kind of machine, and the messages that tickets quote."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from topoadvisor import advise, files, snapshot
from topoadvisor.advice import Advice
from topoadvisor.ingest import assume, detect
from topoadvisor.snapshot import Snapshot

FIXTURES = sorted(path.parent.name for path in files.shipped("fixtures").glob("*/snapshot.json"))
SYMPTOMS = ("hang", "slow", "refused", "crash", "wrong-data", "out-of-memory")
MESSAGES: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "messages.yaml").read_text(encoding="utf-8"))
PAIR = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
ALONE = "\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n"
EIGHT = "".join(
    f"{'' if row < 0 else f'GPU{row}'}\t"
    + "\t".join(f"GPU{column}" if row < 0 else " X " if row == column else "NV18" for column in range(8))
    + "\n"
    for row in range(-1, 8)
)


def advice(machine: Snapshot, *facts: str) -> Advice:
    return advise.advise(assume.apply(machine, assume.gather(list(facts), None)))


def pasted(text: str) -> Snapshot:
    return detect.read(["-"], stdin=io.BytesIO(text.encode()))


def answers(given: Advice) -> bool:
    """Some finding stands on the report, or is an error of the machine itself."""
    return any(
        finding.severity == "error" or {"job.symptom", "job.message"} & {each.fact for each in finding.evidence}
        for finding in given.findings
    )


@pytest.mark.parametrize("symptom", SYMPTOMS)
@pytest.mark.parametrize(
    "more", ["", "vm.guest=true", "job.nodes=2", "job.framework=vLLM", "p2p.ok=true", "iommu.mode=identity"]
)
def test_no_report_is_met_with_silence(symptom: str, more: str) -> None:
    read = {"one pasted GPU": pasted(ALONE), "two pasted GPUs": pasted(PAIR), "eight pasted GPUs": pasted(EIGHT)}
    machines = FIXTURES if not more else ("8x4090", "dgx-h100")
    for name in machines:
        path = files.shipped("fixtures") / name / "snapshot.json"
        read[name] = snapshot.decode(path.read_bytes(), file=str(path))
    told = [f"job.symptom={symptom}", *filter(None, [more])]
    assert not [name for name, machine in read.items() if not answers(advice(machine, *told))]


@pytest.mark.parametrize("rule", MESSAGES)
def test_a_message_is_known(rule: str) -> None:
    machine = pasted(EIGHT)
    for message in MESSAGES[rule]:
        facts = ["gpu.name=NVIDIA H100 80GB HBM3", "job.symptom=crash", "job.nodes=2", f"job.message={message}"]
        said = {finding.id for finding in advice(machine, *facts).findings} & {*MESSAGES, "SYS046", "SYS045", "SYS038"}
        assert said == {rule}, message


@pytest.mark.parametrize("name", ["cases", "messages", "support"])
def test_no_name_stands_twice(name: str) -> None:
    """The reader of YAML takes the last without a word, and the first would no longer be tested."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    document = yaml.compose(text)
    assert isinstance(document, yaml.MappingNode)
    names = [key.value for key, _ in document.value]
    assert sorted(names) == sorted(set(names))
