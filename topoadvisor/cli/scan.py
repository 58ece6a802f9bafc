"""`topoadvisor scan`."""

from topoadvisor.cli.common import SourceArgument


def scan(source: SourceArgument = None) -> None:
    """Say what this machine is, what is wrong, what to set and how the GPUs should form rings."""
    print(source)
