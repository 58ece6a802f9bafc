"""What changed between two captures of one machine."""

from topoadvisor.diff.compare import compare

__all__ = ["compare"]
