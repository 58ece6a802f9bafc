"""What files that set variables can be."""

from __future__ import annotations

from typing import Literal

FileKind = Literal[
    "nccl.conf",
    "shell",
    "task-prolog",
    "dockerfile",
    "makefile",
    "yaml",
    "json",
    "env",
    "deepspeed-env",
    "python",
    "systemd",
    "lua",
]
Kind = Literal[FileKind, "environment"]
"""With the environment of a process, which is no file."""
