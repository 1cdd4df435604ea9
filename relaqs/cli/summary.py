"""The line that `relaqs --help` prints for a command of another package, without importing the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def summary(entry: EntryPoint) -> str:
    """Return what the command says of itself: its `short_help`, or else its docstring's first line.

    Both are read from the source. Where there is none, the package's name is all there is to say.
    """
    unknown = f"Of the package {entry.dist.name}." if entry.dist is not None else ""
    try:
        tree = _source(entry.module)
    except (OSError, SyntaxError, ValueError, ImportError):  # the command itself will say what is wrong
        return unknown
    command = next((each for each in _functions(tree) if each.name == entry.attr), None)
    return (command and (_short_help(command) or _first_line(command))) or unknown


def _source(module: str) -> ast.Module:
    spec = _spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no source of {module}")
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _spec(module: str) -> ModuleSpec | None:
    """Return where a module is. `importlib.util.find_spec` would import the packages above it."""
    package, _, rest = module.partition(".")
    spec, name = find_spec(package), package
    for part in filter(None, rest.split(".")):
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations if spec is not None else [])
    return spec


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in tree.body if isinstance(node, ast.FunctionDef))


def _short_help(command: ast.FunctionDef) -> str | None:
    for decorator in command.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "short_help" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return None


def _first_line(command: ast.FunctionDef) -> str:
    return (ast.get_docstring(command) or "").partition("\n")[0]
