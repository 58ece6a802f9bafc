"""Which reader takes which file."""

from __future__ import annotations

import re
from typing import Final

from topoadvisor.lint.kinds import Kind
from topoadvisor.lint.model import Contents
from topoadvisor.lint.pieces import Piece

_BY_NAME: Final[tuple[tuple[str, Kind], ...]] = (
    (r"\.?nccl\.conf|.*[._-]nccl\.conf|nccl[._-].*\.conf", "nccl.conf"),
    (r"\.deepspeed_env", "deepspeed-env"),
    (r"(?i)(docker|container)file([._-].*)?|.*\.(docker|container)file", "dockerfile"),
    (r"(GNU)?[Mm]akefile([._-].*)?|.*\.mk", "makefile"),
    (r"\.env([._-].*)?|.*\.env|environment|env\.list", "env"),
    (r"(?i)(.*[._-])?task[._-]?prolog([._-].*)?", "task-prolog"),
    (r".*\.(sh|bash|zsh|ksh|sbatch|slurm|pbs|job|batch|lsf|sub)|\.?(bashrc|bash_profile|profile|zshrc)", "shell"),
    (r".*\.ya?ml(\.(j2|tpl|tmpl))?", "yaml"),
    (r".*\.json", "json"),
    (r".*\.py", "python"),
    (r".*\.(service|container)", "systemd"),
    (r".*\.lua", "lua"),
)

_RUNS: Final = re.compile(
    r"(?<![A-Za-z])(command|cmd|args|run|script|entrypoint|shell|setup|exec|launch|start)"
    r"|Command|Cmd|Args|Run|Script|Entrypoint|Shell|Setup|Exec|Launch|Start"
)


def runs(key: str) -> bool:
    """Whether a text of this name is one that a shell gets; others are read by people."""
    return _RUNS.search(key) is not None


def kind_of_name(path: str) -> Kind | None:
    """What a file is by its name alone; None = the name does not say."""
    folders, _, name = path.rstrip("/").rpartition("/")
    if folders.endswith(".service.d") and name.endswith(".conf"):
        return "systemd"
    return next((kind for pattern, kind in _BY_NAME if re.fullmatch(pattern, name)), None)


def kind_of_text(text: str) -> Kind:
    """What a text without a telling name is most likely: a script, unless it begins like something else."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.startswith("#!"):
        return "python" if "python" in first else "shell"
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    first = lines[0] if lines else ""
    if re.match(r"(?i)(FROM|ARG)\s+\S", first):
        return "dockerfile"
    if re.fullmatch(r"\[(Unit|Service|Container)\]\s*", first):
        return "systemd"
    if first.startswith(("{", "[")) and not first.startswith("[["):
        return "json"
    if re.match(r"(---|(-\s+)?[A-Za-z_][\w.-]*:(\s|$))", first):
        return "yaml"
    if re.match(r"(import|from)\s+[A-Za-z_]", first):
        return "python"
    return "shell"


def read(piece: Piece, kind: Kind, *, version: str | None = None, expanded: bool = False, depth: int = 0) -> Contents:
    """What a text of one kind sets.

    Raises Unreadable for YAML, JSON or Python that cannot be parsed. `expanded`: a shell has replaced variables in it.
    """
    from topoadvisor.lint.readers import dockerfile, lines, makefile, shell, systemd

    match kind:
        case "nccl.conf":
            return lines.nccl_conf(piece, version=version, expanded=expanded)
        case "env":
            return lines.env_file(piece, expanded=expanded)
        case "lua":
            return lines.lua(piece)
        case "deepspeed-env":
            return lines.deepspeed_env(piece)
        case "environment":
            return lines.environment(piece)
        case "dockerfile":
            return dockerfile.read(piece)
        case "makefile":
            return makefile.read(piece)
        case "yaml" | "json":
            from topoadvisor.lint.readers import yaml_files

            return yaml_files.read(piece, depth=depth, json=kind == "json")
        case "systemd":
            return systemd.read(piece)
        case "python":
            from topoadvisor.lint.readers import python_files

            return python_files.read(piece)
        case "task-prolog":
            return shell.task_prolog(piece)
        case "shell":
            contents = shell.read(piece, depth=depth)
            shell.add_directives(piece, contents)
            if depth == 0:
                shell.add_carriage_returns(piece, contents)
            return contents


def read_named(path: str, piece: Piece, *, expanded: bool = False, depth: int = 0) -> Contents | None:
    """What a text sets that becomes the file of that name; None when the name says nothing, or it cannot be parsed."""
    kind = kind_of_name(path)
    if kind is None:
        return None
    from topoadvisor.lint.model import Unreadable

    try:
        return read(piece, kind, expanded=expanded, depth=depth)
    except Unreadable:
        return None
