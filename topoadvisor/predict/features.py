"""What is on or off for a whole job: cuMem, NVLS, PXN, MNNVL, LL128."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from topoadvisor.nccl import choices, defaults, protocols
from topoadvisor.nccl.defaults import Machine
from topoadvisor.nccl.host import Connection, Host
from topoadvisor.nccl.levels import NcclPath
from topoadvisor.nccl.settings import registry
from topoadvisor.nccl.system import Kind, System, integer
from topoadvisor.predict.document import Feature, Group, State
from topoadvisor.predict.variables import Variables
from topoadvisor.snapshot import Snapshot
from topoadvisor.topology.nccl_view import Job

_AUTOMATIC: Final = -2
_MNNVL_SINCE: Final = 9.0
"""Compute capability of Hopper, the first GPUs that register with an NVLink fabric (`nvmlDeviceGetGpuFabricInfo`)."""
_BARE: Final = " (on bare metal it does once Fabric Manager works)"
_GUEST: Final = " (in many guests it does not)"
_DECIDES: Final = (
    "with NCCL_DEBUG=INFO a job of two GPUs prints `NVLS multicast support is available`, or `not available`"
)


class Told:
    """Answers that rest on the driver, the GPUs and the variables."""

    def __init__(self, snapshot: Snapshot, machine: System, variables: Variables, version: str) -> None:
        self._snapshot, self._system, self._variables, self._version = snapshot, machine, variables, version
        gpus = machine.nodes[Kind.GPU]
        capabilities = [integer(gpu.element, "sm") for gpu in gpus]
        known = [each for each in capabilities if each is not None]
        self._machine = Machine(
            gpus=len(gpus),
            compute_capability=min(known) / 10 if len(known) == len(gpus) else None,
            nvswitch=bool(machine.nodes[Kind.NVS]) or (None if any(gpu.unread() for gpu in gpus) else False),
            cuda=snapshot.driver.cuda,
        )

    @cached_property
    def cumem(self) -> Feature:
        """Whether buffers are shared by the cuMem API; before, by CUDA IPC."""
        name, chosen = "CUMEM", self._variables.number("NCCL_CUMEM_ENABLE")
        if not registry()["NCCL_CUMEM_ENABLE"].exists_in(self._version):
            return Feature(name=name, state="off", why=f"NCCL {self._version} does not have it")
        if chosen != _AUTOMATIC:
            return Feature(name=name, state="on" if chosen else "off", why=self._said("NCCL_CUMEM_ENABLE", chosen))
        return self._default(name, "NCCL_CUMEM_ENABLE")

    def _default(self, name: str, variable: str) -> Feature:
        judged = defaults.default(registry()[variable], self._version, self._machine)
        state: State = "on" if judged.here == "on" else "off" if judged.here == "off" else "unknown"
        return Feature(name=name, state=state, why=judged.why)

    def _said(self, name: str, value: int) -> str:
        set_to = self._variables.text(name)
        return f"{name}={set_to}" if set_to is not None else f"{name} is {value} by default in NCCL {self._version}"

    def via(self, connection: Connection) -> str:
        """How P2P is spelt in NCCL's log, between GPUs of different processes."""
        indirect = connection.reach.shortest is NcclPath.NVB
        names: dict[State, str] = {"on": "CUMEM", "off": "IPC", "unknown": "CUMEM or IPC"}
        kind = "MNNVL" if len(self._system.hosts) > 1 else "indirect" if indirect else names[self.cumem.state]
        wanted = self._variables.number("NCCL_P2P_READ_ENABLE")
        copies = self._variables.number("NCCL_P2P_USE_CUDA_MEMCPY") != 0
        reads = connection.read if wanted == _AUTOMATIC else bool(wanted)
        return kind + ("/read" if reads and not copies else "") + ("/CE" if copies and not indirect else "")

    def nvls(self) -> Feature:
        """NVLink SHARP: the switches add up."""
        name, chosen = "NVLS", self._variables.number("NCCL_NVLS_ENABLE")
        if not registry()["NCCL_NVLS_ENABLE"].exists_in(self._version):
            return Feature(name=name, state="off", why=f"NCCL {self._version} does not have it")
        if chosen == 0:
            return Feature(name=name, state="off", why=self._said("NCCL_NVLS_ENABLE", 0))
        judged = defaults.default(registry()["NCCL_NVLS_ENABLE"], self._version, self._machine)
        if judged.here == "off":
            return Feature(name=name, state="off", why=judged.why)
        if judged.here is None:
            return Feature(name=name, state="unknown", why=f"{judged.why}; not all of this was read")
        if chosen == 1:
            return Feature(name=name, state="on", why=f"{self._said('NCCL_NVLS_ENABLE', 1)}: the GPU is not asked")
        hypervisor = self._snapshot.host.hypervisor
        usual = _BARE if hypervisor == "none" else _GUEST if hypervisor is not None else ""
        why = f"on if the driver reports multicast for the GPUs, which was not read{usual}; {_DECIDES}"
        return Feature(name=name, state="unknown", why=why)

    def mnnvl(self) -> Feature:
        """NVLink between hosts."""
        name, variable = "MNNVL", "NCCL_MNNVL_ENABLE"
        hosts = len(self._system.hosts)
        if not registry()[variable].exists_in(self._version):
            return Feature(name=name, state="off", why=f"NCCL {self._version} does not have it")
        if self._variables.number(variable) == 0:
            return Feature(name=name, state="off", why=self._said(variable, 0))
        if self.cumem.state == "off":
            return Feature(name=name, state="off", why=f"it needs cuMem, which is off: {self.cumem.why}")
        if self._variables.p2p_level() is NcclPath.LOC:
            return Feature(name=name, state="off", why="P2P is switched off")
        if hosts > 1:
            return Feature(name=name, state="on", why=f"the file joins {hosts} hosts by NVLink")
        fabrics = [gpu.fabric for gpu in self._snapshot.gpus]
        if any(fabric is None or fabric.state is None for fabric in fabrics) or not fabrics:
            cannot = self._never_between_hosts()
            if cannot is not None:
                return Feature(name=name, state="off", why=cannot)
            return Feature(name=name, state="unknown", why="whether the GPUs are in a fabric was not read")
        if any(fabric is not None and fabric.state != "completed" for fabric in fabrics):
            return Feature(name=name, state="off", why="the GPUs are not registered with a fabric")
        if any(fabric is not None and fabric.cluster_uuid is None for fabric in fabrics):
            return Feature(name=name, state="off", why="the fabric of these GPUs does not reach beyond this host")
        why = "the GPUs are in a fabric with others; it takes several hosts of one clique, and a working IMEX on each"
        return Feature(name=name, state="unknown", why=why)

    def _never_between_hosts(self) -> str | None:
        """Why NVLink cannot leave this host, whatever its fabric."""
        capability = self._machine.compute_capability
        if capability is not None and capability < _MNNVL_SINCE:
            return f"NVLink between hosts begins with compute capability {_MNNVL_SINCE}, and here it is {capability}"
        if self._machine.nvswitch is False and len(self._system.nodes[Kind.GPU]) > 1:
            return "NVLink between hosts goes through NVSwitches, and these GPUs are at none"
        return None


def pxn(seen: Host, snapshot: Snapshot, variables: Variables, job: Job) -> Feature:
    """Sending through the GPU that is next to a port."""
    name, network = "PXN", seen.network
    if not variables.switches().pxn:
        set_to = variables.text("NCCL_PXN_DISABLE")
        why = f"NCCL_PXN_DISABLE={set_to}" if set_to else f"NCCL {job.version} does not have it"
        return Feature(name=name, state="off", why=why)
    if not network.ports:
        forbidden = variables.no_rdma()
        if forbidden is not None:
            return Feature(name=name, state="off", why=f"{forbidden} leaves no RDMA port")
        if snapshot.nics is None:
            return Feature(name=name, state="unknown", why="the network ports were not read")
        return Feature(name=name, state="off", why="there is no port that NCCL could use for RDMA")
    if not network.relays:
        why = "no GPU would reach a port better through another one that NVLink joins to it"
        return Feature(name=name, state="off", why=why)
    (g, n), peer = next(iter(network.relays.items()))
    labels = [job.label(gpu) for gpu in seen.gpus]
    example = f"{labels[g]} sends to {network.ports[n].name} through {labels[peer]}"
    count = len(network.relays)
    more = f", and {count - 1} more" if count > 1 else ""
    unread = network.gdr(peer, n, read=True).unread
    if unread is not None:
        return Feature(name=name, state="unknown", why=f"{example}{more}, if GPUDirect RDMA works, but {unread}")
    return Feature(name=name, state="on", why=f"{example}{more}, in jobs of several hosts")


def ll128(groups: list[Group], machine: System, variables: Variables, version: str) -> Feature:
    """The protocol LL128, between the GPUs of this host."""
    name, protocol = "LL128", variables.text("NCCL_PROTO")
    if protocol is not None:
        reading = choices.read(protocol, choices.PROTOCOLS, version)
        if reading.error is not None:
            return Feature(name=name, state="off", why=f"NCCL_PROTO={protocol} ends initialization: {reading.error}")
        if choices.forces_ll128(protocol):
            return Feature(name=name, state="on", why=f"NCCL_PROTO={protocol} forces it past NCCL's own check")
        if all(each.function is None for each in reading.choices):
            return Feature(name=name, state="off", why=f"NCCL_PROTO={protocol} leaves it out")
    if any(group.rings is None for group in groups):
        why = next(group.why for group in groups if group.rings is None)
        return Feature(name=name, state="unknown", why=f"it depends on the rings: {why}")
    capabilities = [integer(gpu.element, "sm") or 0 for gpu in machine.nodes[Kind.GPU]]
    found = [channels for group in groups for channels in (group.rings, group.trees) if channels is not None]
    outside = [NcclPath[each.network_path] for each in found if each.network_path is not None]
    allowed = protocols.ll128(
        version,
        min(capabilities),
        max(capabilities),
        max(NcclPath[each.path] for each in found),
        max(outside, default=None),
        c2c=variables.number("NCCL_LL128_C2C") != 0,
    )
    return Feature(name=name, state="on" if allowed.yes else "off", why=allowed.why)
