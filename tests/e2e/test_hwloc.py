"""An hwloc XML through every verb that takes a SOURCE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MACHINE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001" gp_index="1">
  <info name="Architecture" value="x86_64"/><info name="HostName" value="node-a"/>
  <object type="Package" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="2">
   <info name="CPUVendor" value="AuthenticAMD"/><info name="CPUFamilyNumber" value="25"/>
   <info name="CPUModelNumber" value="1"/>
   <object type="NUMANode" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="3" local_memory="1048576"/>
   <object type="Bridge" gp_index="4" bridge_type="0-1" depth="0" bridge_pci="0000:[c0-c2]">
    <object type="Bridge" gp_index="5" bridge_type="1-1" depth="1" bridge_pci="0000:[c1-c1]" pci_busid="0000:c0:01.1"
      pci_type="0604 [1022:1483] [1022:1453] 00" pci_link_speed="31.507692">
     <object type="PCIDev" gp_index="6" pci_busid="0000:c1:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1"
       pci_link_speed="31.507692">
      <object type="OSDev" gp_index="7" name="nvml0" subtype="NVML" osdev_type="1">
       <info name="GPUModel" value="NVIDIA A100 80GB PCIe"/></object></object></object>
    <object type="Bridge" gp_index="8" bridge_type="1-1" depth="1" bridge_pci="0000:[c2-c2]" pci_busid="0000:c0:03.1"
      pci_type="0604 [1022:1483] [1022:1453] 00" pci_link_speed="31.507692">
     <object type="PCIDev" gp_index="9" pci_busid="0000:c2:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1"
       pci_link_speed="31.507692">
      <object type="OSDev" gp_index="10" name="nvml1" subtype="NVML" osdev_type="1">
       <info name="GPUModel" value="NVIDIA A100 80GB PCIe"/></object></object></object></object></object></object>
 <distances2hetero nbobjs="2" kind="25" name="NVLinkBandwidth">
  <indexes length="16">OSDev:7 OSDev:10</indexes>
  <u64values length="30">1000000 300000 300000 1000000 </u64values></distances2hetero>
</topology>
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "lstopo.xml"
    path.write_text(MACHINE, encoding="utf-8")
    return str(path)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "topoadvisor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        timeout=60,
    )


def test_scan(source: str) -> None:
    done = run("scan", source)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 × NVIDIA A100 80GB PCIe" in done.stdout
    assert "NV12 on 1 of 1 pair" in done.stdout


def test_matrix(source: str) -> None:
    rows = run("matrix", source).stdout.splitlines()
    assert rows[1].split() == ["GPU0", "X", "NV12", "0-3", "0"]


def test_facts(source: str) -> None:
    found = json.loads(run("facts", source, "--format", "json").stdout)
    text = json.dumps(found)
    assert '"hwloc-xml"' in text
    assert "an hwloc XML does not hold it" in text
    assert "needs root" not in text


def test_render(source: str, tmp_path: Path) -> None:
    picture = tmp_path / "machine.svg"
    done = run("render", source, "-o", str(picture))
    assert done.returncode == 0, done.stderr
    assert "<svg" in picture.read_text(encoding="utf-8")[:1000]
