"""`python -m topoadvisor`."""

from topoadvisor.cli import entry_point

entry_point()
