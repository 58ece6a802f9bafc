from __future__ import annotations

import pytest

from topoadvisor.errors import InputError
from topoadvisor.predict import job_environment


def settings(text: str, file: str = "job.env") -> dict[str, str]:
    return {each.name: each.value for each in job_environment.read(text, file)[0]}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("job.env", "NCCL_PROTO=Simple\n"),
        ("job.env", 'export NCCL_PROTO="Simple"  \n'),
        ("job", "#!/bin/bash\nexport NCCL_PROTO=Simple\nsrun python train.py\n"),
        ("nccl.conf", "NCCL_PROTO=Simple\n"),
        ("Dockerfile", "FROM x\nENV NCCL_PROTO=Simple\n"),
        ("job.sh", "export NCCL_PROTO=LL\nexport NCCL_PROTO=Simple\n"),
        ("job.sh", "export NCCL_PROTO=Simple NCCL_ALGO=Ring\nunset NCCL_ALGO\n"),
    ],
)
def test_what_sets_a_variable(file: str, text: str) -> None:
    assert settings(text, file) == {"NCCL_PROTO": "Simple"}


def test_what_is_left_out_is_said() -> None:
    text = "export NCCL_PROTO=$X\nif true; then export NCCL_ALGO=Ring; fi\nNCCL_P2P_LEVEL=SYS\n"
    found, notes = job_environment.read(text, "job.sh")
    assert found == []
    told = " ".join(notes)
    assert "NCCL_PROTO (job.sh:1) is left out: its value" in told
    assert "NCCL_ALGO (job.sh:2) is left out: it is set under a condition" in told
    assert "NCCL_P2P_LEVEL (job.sh:3) is left out: it is not exported" in told
    assert "sets no variable" in told


def test_lines_are_told() -> None:
    (found,), notes = job_environment.read("\n\nNCCL_PROTO=LL\n", "job.env")
    assert (found.origin, found.line, notes) == ("job.env", 3, [])


def test_a_file_that_cannot_be_parsed() -> None:
    with pytest.raises(InputError, match=r"job\.json"):
        job_environment.read("{", "job.json")


@pytest.mark.parametrize("text", ["NCCL_PROTO\0=LL", "\x01\x02", "N\0C\0C\0L\0"])
def test_what_is_no_text(text: str) -> None:
    with pytest.raises(InputError, match=r"job\.env: this is no text"):
        job_environment.read(text, "job.env")
