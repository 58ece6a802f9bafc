"""The console script and `python -m topoadvisor`."""

import gc
import sys


def entry_point() -> int:
    """Run the program and return its exit code, also when Ctrl-C comes while it is still being loaded."""
    # A short run frees almost nothing in cycles; scanning for them costs a tenth of the start-up.
    gc.set_threshold(100_000)
    try:
        from topoadvisor.cli import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(entry_point())
