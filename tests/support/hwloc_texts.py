"""Topologies as hwloc writes them, in its three formats."""

from __future__ import annotations

from collections.abc import Sequence

from topoadvisor.ingest import hwloc_xml
from topoadvisor.snapshot import Snapshot

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "{dtd}">\n'
SUPPORT = '<support name="discovery.pu"/>\n'


def parse(text: str) -> Snapshot:
    return hwloc_xml.parse(text, file="lstopo.xml")


def matrix(objects: Sequence[str], rows: Sequence[Sequence[int]], name: str = "NVLinkBandwidth") -> str:
    """A bandwidth matrix, broken into pieces of ten as hwloc writes it."""
    values = [str(value) for row in rows for value in row]
    parts = []
    for tag, words in (("indexes", list(objects)), ("u64values", values)):
        for place in range(0, len(words), 10):
            text = " ".join(words[place : place + 10]) + " "
            parts.append(f'<{tag} length="{len(text)}">{text}</{tag}>')
    inside = "\n".join(parts)
    return f'<distances2hetero nbobjs="{len(objects)}" kind="25" name="{name}">\n{inside}\n</distances2hetero>\n'


def gpu_2(number: int, bus: int, *, model: str = "Tesla V100-SXM2-32GB", device: str = "1db5") -> str:
    return (
        f'<object type="PCIDev" gp_index="{300 + number}" pci_busid="0000:{bus:02x}:00.0" '
        f'pci_type="0302 [10de:{device}] [10de:1249] a1" pci_link_speed="15.753846">'
        f'<object type="OSDev" gp_index="{400 + number}" name="nvml{number}" subtype="NVML" osdev_type="1">'
        f'<info name="Backend" value="NVML"/><info name="GPUModel" value="{model}"/>'
        f'<info name="NVIDIAUUID" value="GPU-00000000-0000-4000-8000-00000000000{number}"/></object>'
        f'<object type="OSDev" gp_index="{410 + number}" name="cuda{3 - number}" subtype="CUDA" osdev_type="5">'
        '<info name="GPUModel" value="the name that CUDA gives"/></object></object>'
    )


# A switch with two GPUs and an adapter with two ports below one socket, two GPUs on ports of their own below the other.
VERSION_2 = (
    HEAD.format(dtd="hwloc2.dtd")
    + """<topology version="2.0">
<object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000003" gp_index="1">
 <info name="DMISysVendor" value="A Maker"/><info name="DMIProductName" value="Server 4"/>
 <info name="DMIBoardSerial" value="not to be kept"/>
 <info name="OSRelease" value="5.15.0"/><info name="HostName" value="node-a"/><info name="Architecture" value="x86_64"/>
 <info name="hwlocVersion" value="2.10.0"/>
 <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" gp_index="2">
  <info name="CPUVendor" value="GenuineIntel"/><info name="CPUFamilyNumber" value="6"/>
  <info name="CPUModelNumber" value="85"/><info name="CPUModel" value="Xeon 8168 "/>
  <object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
  <object type="Core" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="4">
   <object type="PU" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="5"/></object>
  <object type="Bridge" gp_index="6" bridge_type="0-1" depth="0" bridge_pci="0000:[16-1b]">
   <object type="Bridge" gp_index="7" bridge_type="1-1" depth="1" bridge_pci="0000:[17-1b]" pci_busid="0000:16:00.0"
     pci_type="0604 [8086:2030] [8086:0000] 04" pci_link_speed="15.753846">
    <object type="Bridge" gp_index="8" bridge_type="1-1" depth="2" bridge_pci="0000:[18-1b]" pci_busid="0000:17:00.0"
      pci_type="0604 [10b5:8764] [10b5:8764] ab" pci_link_speed="15.753846">
     <object type="Bridge" gp_index="9" bridge_type="1-1" depth="3" bridge_pci="0000:[19-19]" pci_busid="0000:18:00.0"
       pci_type="0604 [10b5:8764] [10b5:8764] ab" pci_link_speed="15.753846">
"""
    + gpu_2(0, 0x19)
    + """
     </object>
     <object type="Bridge" gp_index="10" bridge_type="1-1" depth="3" bridge_pci="0000:[1a-1a]" pci_busid="0000:18:04.0"
       pci_type="0604 [10b5:8764] [10b5:8764] ab" pci_link_speed="15.753846">
"""
    + gpu_2(1, 0x1A)
    + """
     </object>
     <object type="Bridge" gp_index="11" bridge_type="1-1" depth="3" bridge_pci="0000:[1b-1b]" pci_busid="0000:18:08.0"
       pci_type="0604 [10b5:8764] [10b5:8764] ab" pci_link_speed="7.876923">
      <object type="PCIDev" gp_index="12" pci_busid="0000:1b:00.0" pci_type="0207 [15b3:1013] [15b3:0033] 00"
        pci_link_speed="7.876923">
       <object type="OSDev" gp_index="13" name="ib1" osdev_type="2"><info name="Address" value="00:00"/>
        <info name="Port" value="2"/></object>
       <object type="OSDev" gp_index="14" name="ib0" osdev_type="2"><info name="Port" value="1"/></object>
       <object type="OSDev" gp_index="15" name="mlx5_0" osdev_type="3">
        <info name="Port1State" value="4"/><info name="Port1LID" value="0x1"/>
        <info name="Port2State" value="1"/></object>
      </object></object>
    </object></object></object>
 </object>
 <object type="Package" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" gp_index="22">
  <object type="NUMANode" os_index="1" cpuset="0x0000000c" nodeset="0x00000002" local_memory="2147483648"/>
  <object type="Bridge" gp_index="24" bridge_type="0-1" depth="0" bridge_pci="0000:[64-66]">
   <object type="Bridge" gp_index="25" bridge_type="1-1" depth="1" bridge_pci="0000:[65-65]" pci_busid="0000:64:00.0"
     pci_type="0604 [8086:2030] [8086:0000] 04" pci_link_speed="15.753846">
"""
    + gpu_2(2, 0x65)
    + """
   </object>
   <object type="Bridge" gp_index="26" bridge_type="1-1" depth="1" bridge_pci="0000:[66-66]" pci_busid="0000:64:01.0"
     pci_type="0604 [8086:2030] [8086:0000] 04" pci_link_speed="15.753846">
"""
    + gpu_2(3, 0x66)
    + """
   </object></object>
  <object type="Bridge" gp_index="27" bridge_type="0-1" depth="0" bridge_pci="0000:[80-80]">
   <object type="PCIDev" gp_index="28" pci_busid="0000:80:1f.2" pci_type="0106 [8086:a182] [8086:7270] 09"
     pci_link_speed="0.000000"><object type="OSDev" gp_index="29" name="sda" osdev_type="0"/></object>
   <object type="PCIDev" gp_index="30" pci_busid="0000:80:03.0" pci_type="0200 [8086:37d2] [8086:37d2] 09"
     pci_link_speed="0.000000"><object type="OSDev" gp_index="31" name="eno1" osdev_type="2"/></object></object>
 </object>
</object>
<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
 <indexes length="4">1 0 </indexes><u64values length="12">10 21 20 10 </u64values></distances2>
"""
    + matrix(
        ["OSDev:400", "OSDev:401", "OSDev:402", "OSDev:403"],
        [
            [1_000_000, 50_000, 25_000, 0],
            [50_000, 1_000_000, 0, 25_000],
            [25_000, 0, 1_000_000, 50_000],
            [0, 25_000, 50_000, 1_000_000],
        ],
    )
    + SUPPORT
    + "</topology>\n"
)


def gpu_3(number: int, domain: int, model: str = "Tesla P100-SXM2-16GB") -> str:
    return (
        f'<object type="Bridge" id="obj{50 + number}" bridge_type="0-1" depth="0" bridge_pci="000{domain}:[00-01]">'
        f'<object type="Bridge" id="obj{60 + number}" bridge_type="1-1" depth="1" bridge_pci="000{domain}:[01-01]" '
        f'pci_busid="000{domain}:00:00.0" pci_type="0604 [1014:03dc] [0000:0000] 00 00">'
        f'<object type="PCIDev" id="obj{70 + number}" pci_busid="000{domain}:01:00.0" '
        'pci_type="0302 [10de:15f9] [10de:116b] a1 00" pci_link_speed="15.753846">'
        f'<object type="OSDev" id="obj{80 + number}" name="nvml{number}" subtype="NVML" osdev_type="12">'
        f'<info name="GPUModel" value="{model}"/></object></object></object></object>'
    )


# POWER8: two GPUs with NVLinks to each other and to their CPU.
VERSION_3 = (
    HEAD.format(dtd="hwloc2.dtd")
    + '<topology version="3.0"><object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" '
    'nodeset="0x00000001" id="obj1">'
    '<object type="Package" os_index="0" cpuset="0x00000003" nodeset="0x00000001" id="obj3">'
    '<info name="CPUModel" value="POWER8NVL, altivec supported"/>'
    '<object type="NUMANode" os_index="0" cpuset="0x00000003" nodeset="0x00000001" id="obj4"/>'
    + gpu_3(0, 2)
    + gpu_3(1, 3)
    + "</object></object>"
    + matrix(
        ["OSDev:80", "OSDev:81", "Package:3"],
        [[1_000_000, 40_000, 40_000], [40_000, 1_000_000, 40_000], [40_000, 40_000, 1_000_000]],
    )
    + '<info name="Architecture" value="ppc64le"/><info name="OSRelease" value="4.12"/></topology>'
)

# hwloc 1.11: NUMA nodes are part of the tree, one of them is memory only.
VERSION_1 = (
    HEAD.format(dtd="hwloc.dtd")
    + """<topology>
<object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000001f" online_cpuset="0x0000000f">
 <info name="Architecture" value="x86_64"/><info name="hwlocVersion" value="1.11.13"/>
 <distances nbobjs="3" relative_depth="1" latency_base="10.000000">
  <latency value="1.000000"/><latency value="2.100000"/><latency value="1.700000"/>
  <latency value="2.100000"/><latency value="1.000000"/><latency value="2.800000"/>
  <latency value="1.700000"/><latency value="2.800000"/><latency value="1.000000"/></distances>
 <object type="NUMANode" os_index="1" cpuset="0x0000000c" online_cpuset="0x0000000c" local_memory="4096">
  <page_type size="4096" count="1"/>
  <object type="Socket" os_index="1" cpuset="0x0000000c">
   <info name="CPUVendor" value="AuthenticAMD"/><info name="CPUFamilyNumber" value="23"/>
   <info name="CPUModelNumber" value="49"/></object>
  <object type="Bridge" os_index="0" bridge_type="0-1" depth="0" bridge_pci="0000:[80-82]">
   <object type="Bridge" os_index="1" bridge_type="1-1" depth="1" bridge_pci="0000:[81-81]" pci_busid="0000:80:01.1"
     pci_type="0604 [1022:1483] [1022:1453] 00" pci_link_speed="0.000000">
    <object type="PCIDev" os_index="2" name="NVIDIA Corporation" pci_busid="0000:81:00.0"
      pci_type="0302 [10de:20b0] [10de:144e] a1" pci_link_speed="31.507692">
     <object type="OSDev" name="card1" osdev_type="1"/>
     <object type="OSDev" name="cuda0" osdev_type="5"><info name="CoProcType" value="CUDA"/>
      <info name="GPUModel" value="A100-SXM4-40GB"/></object></object></object></object></object>
 <object type="NUMANode" os_index="0" cpuset="0x00000003" online_cpuset="0x00000003" local_memory="8192">
  <object type="Socket" os_index="0" cpuset="0x00000003"/>
  <object type="Bridge" os_index="3" bridge_type="0-1" depth="0" bridge_pci="0000:[00-00]">
   <object type="PCIDev" pci_busid="0000:00:06.0" pci_type="0300 [10de:2235] [10de:145a] a1"/></object></object>
 <object type="NUMANode" os_index="2" cpuset="0x0" online_cpuset="0x0" local_memory="16384"/>
</object>
</topology>
"""
)
