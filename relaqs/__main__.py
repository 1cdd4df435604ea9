"""The start of the program `relaqs`, and of `python -m relaqs`.

Python would answer ctrl-C with a traceback while the modules of the program are loaded. Here it ends quietly.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 128 + signal.SIGINT  # as a shell reports it


def main() -> NoReturn:
    """Run the program and leave the process with its exit code."""
    heard = signal.signal(signal.SIGINT, _leave)
    from relaqs.cli import main as run_program

    signal.signal(signal.SIGINT, heard)
    run_program()


def _leave(signal_number: int, frame: FrameType | None) -> NoReturn:
    """Leave at once. Nothing was begun that needs an end."""
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
