"""Every code of `topoadvisor lint`: the one table behind the messages, the page in docs/, SARIF and the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from topoadvisor.lint.document import Severity


@dataclass(frozen=True)
class Code:
    """One check."""

    name: str
    severity: Severity
    """The usual one; a finding may be milder or graver, and `why` says when."""
    what: str
    """One line."""
    why: str
    do: str
    """What to do about it."""
    example: str
    file: str
    """Name of the file in which the example stands."""
    fix: str = ""
    """What `--fix` does; empty = nothing."""
    covers: tuple[str, ...] = ()
    """Rules of `topoadvisor scan` that say the same of a machine; their ids silence this code, too."""
    version: str | None = None
    """The version of NCCL that the example is about; None = it does not matter."""
    topology: str | None = None
    """The machine that the example needs."""


CODES: Final = {
    "ENV101": Code(
        "made-up-name",
        "warning",
        "A name in wide circulation that nobody reads",
        "Neither NCCL nor a library beside it has ever read the name. The line does nothing, and whoever reads it "
        "believes that it does.",
        "Delete the line, or set the variable that was meant.",
        "export NCCL_SOCKET_TIMEOUT=600000\n",
        "run.sh",
        covers=("ENV012",),
    ),
    "ENV102": Code(
        "unknown-name",
        "warning",
        "A name that no release of NCCL reads",
        "The name is in no release from 2.3.5 on; with --nccl-lib, or an installed library, it is not among the names "
        "that this library holds. Names that a script uses itself (NCCL_HOME, NCCL_ARGS) and those of plugins are left "
        "alone.",
        "Compare with the nearest real name. `topoadvisor explain NAME` knows them all.",
        "export NCCL_IB_HCAS=mlx5_0\n",
        "run.sh",
        covers=("ENV014",),
    ),
    "ENV103": Code(
        "removed-name",
        "warning",
        "A name that this version of NCCL no longer reads",
        "NCCL says nothing about variables that it does not know: the line looks active and is not.",
        "Delete the line, or use the variable that took its place.",
        "NCCL_TREE_THRESHOLD=4294967296\n",
        "nccl.conf",
        fix="Writes the new name where the value means the same.",
        covers=("ENV005", "ENV017"),
    ),
    "ENV104": Code(
        "name-of-a-newer-release",
        "warning",
        "A name that this version of NCCL does not read yet",
        "The variable came with a later release than the one judged for (--nccl-version, --nccl-lib or the topology).",
        "Update NCCL, or delete the line.",
        "export NCCL_GIN_ENABLE=1\n",
        "run.sh",
        version="2.20.5",
        covers=("ENV006",),
    ),
    "ENV105": Code(
        "name-without-effect",
        "warning",
        "A name that NCCL declares and never reads",
        "The name stands in the library, and no code asks for its value.",
        "Delete the line.",
        "export NCCL_CHECKS_DISABLE=1\n",
        "run.sh",
    ),
    "ENV106": Code(
        "older-name",
        "info",
        "An older name of a variable, still read",
        "The new name wins where both are set, and the old one may go.",
        "Use the new name once every image in use knows it.",
        "export NCCL_MIN_NRINGS=4\n",
        "run.sh",
        fix="Writes the new name where both mean exactly the same in the version judged for.",
        covers=("ENV015",),
    ),
    "ENV111": Code(
        "value-ends-the-job",
        "error",
        "A value with which NCCL does not start, or dies",
        "NCCL refuses words of NCCL_ALGO and NCCL_PROTO that it does not know since 2.24.3, divides by zero for a tiny "
        "NCCL_BUFFSIZE, and fails for an empty address or network.",
        "Write the value that was meant.",
        "export NCCL_BUFFSIZE=8M\n",
        "run.sh",
        fix="Writes out units (8M becomes 8388608) and takes blanks out of lists.",
        covers=("ENV003",),
    ),
    "ENV112": Code(
        "value-misread",
        "error",
        "A value that NCCL reads as something else",
        "NCCL reads a number up to the first letter that is no digit, and a word as 0: `true` switches off, and 8M is "
        "8. Info where the result is the one that was meant: `false` is 0, too.",
        "Write the plain number.",
        "export NCCL_NVLS_ENABLE=true\n",
        "run.sh",
        fix="Writes 1 or 0 for words where there is no third value, and plain bytes for units.",
        covers=("ENV013",),
    ),
    "ENV113": Code(
        "value-ignored",
        "warning",
        "A value that counts as not set",
        "What NCCL's parser for this variable does not know, it drops: levels count only in capitals, and one unknown "
        "word discards a whole list of log subsystems since 2.30.7.",
        "Write a value that NCCL knows; `topoadvisor explain NAME` lists them.",
        "export NCCL_P2P_LEVEL=phb\n",
        "run.sh",
        fix="Writes levels in capitals.",
        covers=("P2P012", "NET033"),
    ),
    "ENV114": Code(
        "value-out-of-range",
        "warning",
        "A number beyond what makes sense",
        "NCCL checks few numbers. Some are cut to the bits of a hardware field: NCCL_IB_TIMEOUT=1000 acts as 8.",
        "Write a number within the range.",
        "export NCCL_IB_TIMEOUT=1000\n",
        "run.sh",
        covers=("NET015",),
    ),
    "ENV115": Code(
        "ll128-forced",
        "warning",
        "A list of protocols that forces LL128 past NCCL's safety check",
        "A list that names LL128, and one that excludes others without it (^LL), enables it where it may corrupt data. "
        "With --topology the rule ENV001 decides.",
        "Unset it. NCCL_PROTO=^LL128 is the way to exclude LL128.",
        "export NCCL_PROTO=^LL\n",
        "run.sh",
        covers=("ENV001", "ENV022"),
    ),
    "ENV116": Code(
        "algorithm-or-protocol-forced",
        "warning",
        "Algorithms or protocols that are fixed for collectives of every size",
        "NCCL picks them by size, collective and topology. A fixed choice loses somewhere, and since 2.24.3 one that a "
        "collective does not support ends the job. Of several that are named NCCL still picks by size, and what is "
        "left out is for information. One command that measures (*_perf) is left alone, and so are "
        "files that speak to the plugin of a cloud. With --topology the rule ENV002 decides.",
        "Unset it, or keep the measurement beside it that shows what it gains, or the reason: results that must be the "
        "same bit by bit need one fixed choice.",
        "export NCCL_ALGO=RING\n",
        "run.sh",
        covers=("ENV002",),
    ),
    "ENV117": Code(
        "value-cut-at-comma",
        "error",
        "A comma that ends the value",
        "srun, sbatch, singularity and qsub take a list with commas: what follows one is the next variable.",
        "Export the variable before, and hand over its name only: --export=ALL.",
        "srun --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1 ./train\n",
        "run.sh",
    ),
    "ENV118": Code(
        "value-is-no-text",
        "error",
        "A number or a truth value where only a text is taken",
        "os.environ raises TypeError for anything but a text; and Kubernetes refuses `value: 1`.",
        "Put quotes around it.",
        'import os\n\nos.environ["NCCL_DEBUG"] = 1\n',
        "train.py",
        fix="Puts quotes around numbers; a truth value becomes 1 or 0 where the variable is a switch.",
    ),
    "ENV121": Code(
        "nccl-conf-takes-it-literally",
        "error",
        "A line of nccl.conf that is not what it looks like",
        "NCCL reads nccl.conf literally: `export`, blanks and quotes become part of names and values, there is no "
        "comment behind a value, and $ is not expanded. Warning for a line end that only older releases keep.",
        "Write NAME=VALUE, and comments on lines of their own.",
        "export NCCL_DEBUG_FILE=/tmp/nccl.%h\n",
        "nccl.conf",
        fix="Writes NAME=VALUE, and a comment on the line above.",
        covers=("ENV019",),
    ),
    "ENV122": Code(
        "line-sets-nothing",
        "warning",
        "A line that sets nothing, or stops the reader",
        "nccl.conf skips a line without `=`, section titles too. Error in a shell, to which NAME = VALUE is a command, "
        "and in .deepspeed_env, whose reader stops at an empty line or a comment. A blank before `=` in an item of "
        "Compose is part of the name; of .env files some readers take it, others refuse the file.",
        "Write NAME=VALUE, or take the line out.",
        "export NCCL_IB_TIMEOUT = 22\n",
        "run.sh",
        fix="Takes out the blanks around `=`.",
    ),
    "ENV131": Code(
        "not-exported",
        "warning",
        "A variable of the shell that no program sees",
        "Without export it stays in the shell, unless it was exported before.",
        "Write export in front of it.",
        "NCCL_SOCKET_IFNAME=eth0\ntorchrun --nproc-per-node 8 train.py\n",
        "run.sh",
    ),
    "ENV132": Code(
        "lost-with-the-layer",
        "warning",
        "An export that ends with its step of the build",
        "Every RUN is a shell of its own; what it exports is gone when it ends.",
        "Use ENV.",
        "FROM ubuntu:24.04\nRUN export NCCL_SOCKET_IFNAME=eth0\n",
        "Dockerfile",
    ),
    "ENV133": Code(
        "set-too-late",
        "warning",
        "A variable that is set after it was read, or when everything has run",
        "What a script exports behind its last program reaches nobody. PyTorch reads its variables when it makes a "
        "process group. Info for NCCL's own: NCCL reads each of them once, with the first communicator, and that is "
        "made with the group or with the first collective.",
        "Set it before the program starts, or at least before init_process_group.",
        'import os\n\nimport torch.distributed as dist\n\ndist.init_process_group("nccl")\n'
        'os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"\n',
        "train.py",
    ),
    "ENV134": Code(
        "not-for-nccl-conf",
        "warning",
        "A variable in nccl.conf that NCCL does not read",
        "NCCL hands the lines to its own process when it starts. Others may have read their variables by then, "
        "processes without NCCL never see them, and NCCL_CONF_FILE names the file itself.",
        "Set it in the environment of the job.",
        "TORCH_NCCL_BLOCKING_WAIT=0\n",
        "nccl.conf",
    ),
    "ENV135": Code(
        "better-in-another-place",
        "info",
        "A setting that belongs elsewhere",
        "An image runs on many machines, and the names of devices are those of one. Warning for NCCL_COMM_ID, which is "
        "the address of one job, and NCCL_HOSTID, which must differ on every machine, where they stay.",
        "Devices: /etc/nccl.conf of the machine. A job's own values: its launcher.",
        "FROM ubuntu:24.04\nENV NCCL_IB_HCA=mlx5_0,mlx5_1\n",
        "Dockerfile",
    ),
    "ENV141": Code(
        "debugging-left-on",
        "info",
        "A variable for debugging where it stays",
        "In nccl.conf (there a warning), an image or a service it slows or floods every job from then on. In scripts "
        "and jobs it is left alone.",
        "Set it for the one run that is looked at.",
        "NCCL_DEBUG=TRACE\n",
        "nccl.conf",
        covers=("ENV010", "ENV020"),
    ),
    "ENV142": Code(
        "kept-without-reason",
        "info",
        "A workaround or tuning that stays, without a word of why",
        "Settings of these classes answer to one problem or one measurement. Without the reason nobody will dare to "
        "remove them when it has gone.",
        "Write the reason in a comment above it, or remove it.",
        "NCCL_P2P_DISABLE=1\n",
        "nccl.conf",
        covers=("ENV011",),
    ),
    "ENV151": Code(
        "set-to-two-values",
        "warning",
        "Two lines that give one variable different values",
        "Only one of them counts: the first in nccl.conf, the last everywhere else.",
        "Keep one.",
        "NCCL_IB_GID_INDEX=3\nNCCL_IB_GID_INDEX=0\n",
        "nccl.conf",
        covers=("ENV009",),
    ),
    "ENV152": Code(
        "settings-at-odds",
        "warning",
        "Two variables that do not go together",
        "One takes the effect from the other, or together they ask for something that cannot be.",
        "Keep the one that is meant.",
        "export NCCL_P2P_DISABLE=1\nexport NCCL_P2P_LEVEL=NVL\n./train\n",
        "run.sh",
    ),
    "ENV161": Code(
        "ranks-may-differ",
        "warning",
        "A variable that all ranks must share, set for some",
        "Both ends of a connection compute sizes, algorithms and channels from it by themselves; ranks that differ "
        "hang or fail. What describes the machine, such as its NICs, need only be the same within it. Info where the "
        "condition asks for the host: a job may not span both kinds.",
        "Set it for all ranks.",
        'if [ "$RANK" = 0 ]; then\n  export NCCL_BUFFSIZE=8388608\nfi\n./train\n',
        "run.sh",
    ),
    "ENV171": Code(
        "overridden",
        "info",
        "A line of nccl.conf that the environment overrides",
        "The process environment wins over every file (seen with --env).",
        "Remove one of the two.",
        "",
        "nccl.conf",
    ),
    "ENV172": Code(
        "same-as-default",
        "info",
        "A value that NCCL has by itself on this machine",
        "The line changes nothing on the machine and version given with --topology.",
        "Delete it: a later release may know better.",
        "export NCCL_IB_TIMEOUT=20\n",
        "run.sh",
        topology="fixture:dgx-h100",
        covers=("ENV027",),
    ),
    "ENV173": Code(
        "no-effect-here",
        "info",
        "A line that changes nothing on this machine",
        "A prediction with the line and one without are the same: transports between all GPUs, rings, GPUDirect RDMA "
        "and features. Only variables all of whose effect shows there are judged.",
        "Delete it, unless other machines read it, too.",
        "export NCCL_P2P_LEVEL=NVL\n",
        "run.sh",
        topology="fixture:dgx-h100",
        covers=("NVL060",),
    ),
    "ENV174": Code(
        "costs-something-here",
        "warning",
        "A line that takes speed away on this machine",
        "With the line a prediction has slower transports between GPUs, slower rings, less GPUDirect RDMA or one "
        "feature less than without it, and no rule advises the line for this machine.",
        "Delete it, unless it works around a fault; then write down which. `topoadvisor predict --env FILE` shows all.",
        "export NCCL_P2P_LEVEL=NVL\n",
        "run.sh",
        topology="fixture:dgx-1v",
        covers=("NET140",),
    ),
    "ENV191": Code(
        "ignore-without-reason",
        "warning",
        "A comment that silences a finding without a reason",
        "Whoever comes next cannot tell whether the reason still holds. The finding stays silenced.",
        "Write the reason behind the bracket.",
        "# topoadvisor: ignore[ENV106]\nexport NCCL_MIN_NRINGS=4\n",
        "run.sh",
    ),
    "ENV192": Code(
        "ignore-of-nothing",
        "warning",
        "A comment that silences nothing",
        "There is no finding of this code on its line or the one below, or no such code.",
        "Delete the comment.",
        "# topoadvisor: ignore[ENV112] read by an old image\nexport NCCL_NVLS_ENABLE=1\n",
        "run.sh",
    ),
}

DROPPED_RULES: Final = frozenset(rule for code in CODES.values() for rule in code.covers)
"""Rules about variables that lint does not repeat."""


def silences(text: str, code: str) -> bool:
    """Whether a code, or the id of a rule, written in a comment means a finding of `code`."""
    return text == code or (code in CODES and text in CODES[code].covers)
