"""Names of a package that are loaded when they are first used, so that to import it costs nothing."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module


def on_first_use(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package, for what its `if TYPE_CHECKING:` imports.

    So each name is imported in one place, for type checkers and for users. Raises ImportError where the
    package was installed without its .py files.
    """

    @cache
    def homes() -> dict[str, str]:
        module = sys.modules[package]
        try:
            source = inspect.getsource(module)
        except OSError as error:
            raise ImportError(f"{package} reads its names from its .py file; install it with that") from error
        blocks = [
            node
            for node in ast.parse(source).body
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        found = {each.name: node.module or "" for node in imports for each in node.names}
        return {name: found[name] for name in module.__all__ if name in found}

    def load(name: str) -> object:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *homes()})
