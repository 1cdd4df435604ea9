"""One core for a task: linear algebra libraries run a single thread while tasks compute."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


class _OneThread:
    """The limit is the process's own, so it holds from the first task that starts to the last that ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = 0
        self._limit = ExitStack()
        self._controller: ThreadpoolController | None = None
        self._modules = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            self._tasks += 1
            if self._tasks == 1:
                self._limit.enter_context(self._libraries().limit(limits=1, user_api="blas"))
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= 1
                if not self._tasks:
                    self._limit.close()

    def _libraries(self) -> ThreadpoolController:
        """Return the process's libraries, looked for again (8 ms) where anything was imported meanwhile."""
        if self._controller is None or self._modules != len(sys.modules):
            from threadpoolctl import ThreadpoolController

            self._controller = ThreadpoolController()
            self._modules = len(sys.modules)
        return self._controller


_ONE_THREAD = _OneThread()


def one_thread() -> AbstractContextManager[None]:
    """Return a context inside which numpy and scipy use the calling thread alone.

    Their threads would take cores that the scheduler gave to others, and would not be measured. The
    user's own linear algebra in the same process is limited as well, meanwhile.
    """
    return _ONE_THREAD.held()
