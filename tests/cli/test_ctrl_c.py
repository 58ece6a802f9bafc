"""Ctrl-C, once or by somebody impatient: exit code 130, no traceback, no child left, and what was measured is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from topoadvisor.snapshot import Driver, Gpu, PcieLink, Snapshot, decode, encode

PROGRAM = """
import sys
from pathlib import Path
from topoadvisor import collect, snapshot
from topoadvisor.__main__ import entry_point
from topoadvisor.verify import child
folder, *arguments = sys.argv[1:]
collect.capture_live = lambda: snapshot.decode(Path(folder, "live.json").read_bytes())
child.command = lambda: [sys.executable, f"{folder}/copies.py", folder]
child.rank_command = lambda: [sys.executable, f"{folder}/rank.py", folder]
sys.argv = ["topoadvisor", *arguments]
sys.exit(entry_point())
"""

HANG = """
def hang(folder):
    (folder / "pids").write_text(str(os.getpid()))
    (folder / "pids").rename(folder / "hung")
    time.sleep(600)
"""

COPIES = f"""
import json, os, sys, time
from pathlib import Path
{HANG}
job = json.load(sys.stdin)
if job["task"] == "look":
    addresses = ["0000:01:00.0", "0000:02:00.0"]
    print(json.dumps({{"look": {{"cupy": "14.2.0", "runtime": "13.2", "addresses": addresses}}}}))
for number, step in enumerate(job.get("steps", ())):
    print(json.dumps({{"begin": step["name"]}}), flush=True)
    if number == 3:
        hang(Path(sys.argv[1]))
    seconds = step["size_bytes"] / 25.8e9
    print(json.dumps({{"measured": {{"name": step["name"], "outcome": "ok", "seconds": [seconds] * step["repeats"],
          "flow_seconds": [seconds] * len(step["flows"]), "size_bytes": step["size_bytes"], "peer_access": True,
          "checked": "device"}}}}), flush=True)
"""

RANK = f"""
import json, os, sys, time
from pathlib import Path
{HANG}
folder = Path(sys.argv[1])
job = json.load(sys.stdin)
started = len(list(folder.glob("started-*")))
(folder / f"started-{{os.getpid()}}").touch()
print(json.dumps({{"began": {{"nccl": "2.28.9", "runtime": "13.2", "cupy": "14.2.0", "processors": 132}}}}))
for number, case in enumerate(job["cases"]):
    if number == 3:
        (folder / f"third-{{job['rank']}}").touch()
        while len(list(folder.glob("third-*"))) < 2:
            time.sleep(0.01)
    if job["rank"] == 1 and (number == 3 or started > 20):
        hang(folder)
    seconds = [case["size_bytes"] / 20e9] * case["batches"]
    print(json.dumps({{"timed": {{"case": number, "seconds": seconds, "wrong": 0}}}}), flush=True)
print(json.dumps({{"ended": {{"used_bytes": 1}}}}))
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("times", [1, 40])
@pytest.mark.parametrize(
    "words", [["verify"], ["verify", "--collectives", "--nccl", "x"], ["prove", "NCCL_ALGO=ring", "--nccl", "x"]]
)
def test_what_was_measured_is_kept(tmp_path: Path, words: list[str], times: int) -> None:
    gpus = [Gpu(index=i, address=f"0000:0{i + 1}:00.0", pcie=PcieLink(max_gen=4, max_width=16)) for i in range(2)]
    (tmp_path / "live.json").write_bytes(encode(Snapshot(gpus=gpus, driver=Driver(version="580.159.04", cuda="13.0"))))
    (tmp_path / "copies.py").write_text(COPIES)
    (tmp_path / "rank.py").write_text(RANK)
    saved = tmp_path / "node.json"
    more = ["--size", "1M"] if words[0] == "prove" else []
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path, *words, *more, "--save", saved],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        until = time.monotonic() + 60
        while not (tmp_path / "hung").exists() and program.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1)  # What the children said stands in pipes, and is read meanwhile.
        for _ in range(times):
            if program.poll() is None:
                program.send_signal(signal.SIGINT)
                time.sleep(0.05)
        out, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert "Traceback" not in err
    assert "Interrupted" in out
    kept = decode(saved.read_bytes())
    assert kept.measurements or kept.trials
    assert gone(int((tmp_path / "hung").read_text()))
