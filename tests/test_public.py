"""What is public: listed, documented, in the reference, and found by its old import paths."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path

import pytest
import relaqs_engine.old_paths

import relaqs
import relaqs.dbapi
import relaqs.old_paths
from relaqs.policies import Policy
from relaqs.training import MiniBatchTraining, TellsClasses, Training, TrainingJob
from tests.test_house import PACKAGES, python_files

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
PUBLIC = ("relaqs", "relaqs.dask", "relaqs.dbapi", "relaqs.metrics", "relaqs.pacing", "relaqs.policies")
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
INTERNAL_ERRORS = {"Interrupted", "MissingObjectError", "NoRangesError", "RefusedError", "UnseenFileError"}
MOVED = relaqs.old_paths.MOVED | relaqs_engine.old_paths.MOVED


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
    assert named - set(module.__all__) - {"MovedModules", "on_first_use"} == set()


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


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_leads_to_the_module_and_says_so(old: str) -> None:
    new = import_module(MOVED[old])
    spec = new.__spec__
    sys.modules.pop(old, None)
    with pytest.warns(
        DeprecationWarning, match=re.escape(f"{old} is now {MOVED[old]}; import it from there")
    ):
        found = import_module(old)
    assert found is new
    assert new.__spec__ is spec


OLD_IMPORTS = (
    "from relaqs.online_query import OnlineQuery",
    "from relaqs.publisher import QueryTimeoutError",
    "from relaqs.options import ArgumentError, Interval, QueryOptions",
    "from relaqs.snapshot import Snapshot",
    "from relaqs.foreign_query import QueryPacer",
    "from relaqs.pacing import Pacer, report",
    "from relaqs.policies.base import Policy",
    "from relaqs.policies.history import History, Observation",
    "from relaqs.policies.outlook import fit_quality_curves",
    "from relaqs.policies.plan import Plan",
    "from relaqs.policies.view import Jobs, JobView, Kind, View",
    "from relaqs.scheduling import ClusterStatus, JobStatus",
    "from relaqs.scheduling.status import ClusterStatus, JobStatus",
    "from relaqs.simulation.trace import Trace",
    "from relaqs.training.arguments import MissingPackageError",
    "from relaqs.training.k_means import KMeans",
    "from relaqs.training.protocol import Rows, Sums, TrainingJob",
    "from relaqs.training.scikit_hook import report_fits",
    "from relaqs.training.torch_hook import report_losses",
    "from relaqs.training.xgboost_callback import Report",
    "from relaqs_engine.advise import Advice",
    "from relaqs_engine.plan import OnlinePlan",
    "import relaqs.policies.view as v; assert v.View.__module__ == 'relaqs.sharing.view'",
)

# Each statement finds our packages as if nothing of them had been imported, and other libraries as they are.
EACH_ANEW = """
import sys

finders = list(sys.meta_path)
for statement in sys.argv[1:]:
    for name in [name for name in sys.modules if name.startswith("relaqs")]:
        del sys.modules[name]
    sys.meta_path[:] = finders
    try:
        exec(statement, {})
    except BaseException as error:
        sys.exit(f"{statement}: {error!r}")
"""


def test_old_imports_work_in_programs_that_imported_nothing_before() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", EACH_ANEW, *OLD_IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_never_was_is_still_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'relaqs\.online_queries'"):
        import_module("relaqs.online_queries")
