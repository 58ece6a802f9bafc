"""What is computed from a topology: ring orders."""

from typing import Literal

Model = Literal["expected", "measured", "nccl"]
"""What the bandwidths of a plan are taken from. Here, because the command line needs it before it needs numpy."""
