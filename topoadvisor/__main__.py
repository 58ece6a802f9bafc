"""The console script and `python -m topoadvisor`."""

import gc
import signal
import sys


def entry_point() -> int:
    """Run the program and return its exit code, also when Ctrl-C or want of memory stops it while it is loaded."""
    # A short run frees almost nothing in cycles; scanning for them costs a tenth of the start-up.
    gc.set_threshold(100_000)
    try:
        from topoadvisor.errors import memory_is_short

        # After that: nothing can be loaded any more once there is no memory for it.
        from topoadvisor.cli import main  # isort: skip

        return main()
    except KeyboardInterrupt:
        return _end(130, "interrupted")
    except (MemoryError, SystemError):
        # SystemError: the interpreter found no memory for the error itself.
        if "--debug" in sys.argv:
            raise
        return _end(2, "there is not enough memory")
    except ImportError as error:
        if not memory_is_short(error):
            raise
        return _end(2, "there is not enough memory")
    finally:
        # Python itself ends with a traceback when Ctrl-C meets it while it takes itself apart.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(code: int, why: str) -> int:
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"topoadvisor: {why}\n")
        except OSError:
            return code
    return code


if __name__ == "__main__":
    sys.exit(entry_point())
