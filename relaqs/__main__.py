"""The start of the program `relaqs`, and of `python -m relaqs`, and the way its process begins and ends fast.

Python would answer ctrl-C with a traceback while the modules of the program are loaded. Here it ends quietly.
A command that answers a small file takes some 0.4 s, nearly all of it to load modules, to look for garbage
among what they made, and to take them apart again at the end. The last two are spared.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 128 + signal.SIGINT  # as a shell reports it
_NEW_OBJECTS = 50_000  # after which Python looks for garbage; its own 700 is soon reached while modules load


def main() -> NoReturn:
    """Run the program and leave the process with its exit code."""
    heard = signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    from relaqs.cli import main as run_program

    signal.signal(signal.SIGINT, heard)
    try:
        run_program()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end(ended.code)
        raise


def _end(code: int) -> None:
    """Leave the process with all that Python does at its end but to take modules apart. Processes that
    multiprocessing forks end in this way, too.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(signal_number: int, frame: FrameType | None) -> NoReturn:
    """Leave at once. Nothing was begun that needs an end."""
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
