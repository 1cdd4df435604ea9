"""Modules that were moved, under their old names: importing one works, and warns with the new name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader  # it takes milliseconds to import

MOVED = {
    "relaqs_engine.advise": "relaqs_engine.advisor.advise",
    "relaqs_engine.estimate": "relaqs_engine.execution.estimate",
    "relaqs_engine.plan": "relaqs_engine.plans.online_plan",
}


class MovedModules:
    """Finds modules by names that they no longer have. Python asks it last, so other imports cost nothing.

    Args:
        moved: the old name of each module → the new one.

    >>> sys.meta_path.append(MovedModules({"hurdle": "math"}))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     import hurdle
    >>> hurdle.sqrt(9.0)
    3.0
    """

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved = moved

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the module is, as Python asks a finder; None for a name that was not moved."""
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in self._moved else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new name in the place of this empty one."""
        new = self._moved[module.__name__]
        warnings.warn(f"{module.__name__} is now {new}; import it from there", DeprecationWarning, 2)
        sys.modules[module.__name__] = import_module(new)
