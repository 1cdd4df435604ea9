"""What tests share is made once a run, whichever of the run's processes asks first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from relaqs_engine import shared_files


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled, in this process or in another of the same run.

    Args:
        factory: knows the run's folder.
        name: of the folder; the same name is the same folder to all processes of the run.
        make: fills the folder, which is there and empty. Others who ask wait until it returns. Nobody may
            change the files afterwards.
    """
    run = factory.getbasetemp()
    if run.name == f"popen-{os.environ.get('PYTEST_XDIST_WORKER')}":
        run = run.parent  # of the folders of the run's processes
    folder, lock, done = (run / f"shared-{name}{end}" for end in ("", ".lock", ".done"))
    lock.touch()
    held = shared_files.lock(lock)
    try:
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    finally:
        held.release()
    return folder
