"""What is public: listed, documented, and in the reference."""

from __future__ import annotations

import inspect
import re
import types
from importlib import import_module
from pathlib import Path

import pytest

import relaqs
import relaqs.dbapi
from relaqs.policies import Policy
from relaqs.training import MiniBatchTraining, TellsClasses, Training, TrainingJob
from tests.test_house import PACKAGES, python_files

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
PUBLIC = (
    "relaqs",
    "relaqs.ai",
    "relaqs.dask",
    "relaqs.dbapi",
    "relaqs.metrics",
    "relaqs.pacing",
    "relaqs.policies",
)
PUBLIC += ("relaqs.training", "relaqs_bootstrap")
PYTHONS_OWN = ("builtins", "datetime")  # homes of classes that are public under names of ours
PROMISES = (
    MiniBatchTraining,
    Policy,
    TellsClasses,
    Training,
    TrainingJob,
)  # what they say of a method holds for every class that has it

# Errors that users do not meet as such: they catch the class above, or what the task is told instead.
INTERNAL_ERRORS = {
    *("Interrupted", "MissingObjectError", "NoRangesError", "OverdueError", "RefusedError"),
    *("UnseenFileError", "WholeIsSoonerError"),
}


def public_names() -> list[tuple[str, str]]:
    return [(package, name) for package in PUBLIC for name in import_module(package).__all__]


def has_docstring(thing: object) -> bool:
    """Whether somebody wrote the docstring; that of a dataclass without one is its signature."""
    text = inspect.getdoc(thing) or ""
    return bool(text) and not text.startswith(f"{getattr(thing, '__name__', '')}(")


def own_methods(thing: type) -> dict[str, object]:
    """Return the public methods and properties that a class defines."""
    found = {}
    for name, value in vars(thing).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function):
            found[name] = function
    return found


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_there(package: str) -> None:
    module = import_module(package)
    assert list(module.__all__) == sorted(module.__all__, key=lambda name: (_rank(name), name))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def _rank(name: str) -> int:
    """Constants come before classes, classes before functions, as ruff sorts them."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2


@pytest.mark.parametrize("package", PUBLIC)
def test_nothing_is_public_that_is_not_listed(package: str) -> None:
    module = import_module(package)
    named = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and not isinstance(value, types.GenericAlias)
        and getattr(value, "__module__", "").split(".")[0].startswith("relaqs")
    }
    assert named - set(module.__all__) - {"on_first_use"} == set()


@pytest.mark.parametrize(("package", "name"), public_names())
def test_every_public_name_has_a_docstring(package: str, name: str) -> None:
    thing = getattr(import_module(package), name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)) or thing.__module__ in (
        "builtins",
        "datetime",
    ):
        return
    silent = [] if has_docstring(thing) else [name]
    for method, function in own_methods(thing).items() if inspect.isclass(thing) else ():
        if not has_docstring(function) and not any(hasattr(each, method) for each in PROMISES):
            silent.append(f"{name}.{method}")
    assert silent == []


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_says_what_it_promises(promise: type) -> None:
    assert [name for name, method in own_methods(promise).items() if not has_docstring(method)] == []


def test_every_error_is_exported() -> None:
    errors = {
        match
        for package in ("relaqs_engine", "relaqs")
        for path in python_files(PACKAGES[package])
        for match in re.findall(
            r"^class ([A-Z]\w+)\((?:\w+Error)\b", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        if _is_ours(path, match)
    }
    assert "PolicyError" in errors
    assert errors - INTERNAL_ERRORS - set(relaqs.__all__) - set(relaqs.dbapi.__all__) == set()


def _is_ours(path: Path, name: str) -> bool:
    folder = next(each for each in PACKAGES.values() if path.is_relative_to(each))
    module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
    return issubclass(getattr(import_module(module), name), relaqs.RelaqsError)


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md")))
    if re.search(rf"^\.\. automodule:: {re.escape(package)}$", pages, re.MULTILINE):
        return  # the site lists the whole package
    missing = [name for name in import_module(package).__all__ if not re.search(rf"\b{name}\b", pages)]
    assert missing == []
