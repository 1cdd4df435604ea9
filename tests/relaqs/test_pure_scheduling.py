"""The deciding half of the scheduler is pure: arrays in, plans out, and imports point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELAQS, LAB = ROOT / "relaqs", ROOT / "lab" / "relaqs_lab"

# What each part may import of this project; below it, only numpy and harmless parts of the standard library.
MAY_IMPORT = {
    "progress.py": {
        "relaqs_bootstrap.arrays",
        "relaqs.python_values",
        "relaqs_engine.execution.estimate",
    },
    "prediction": {"relaqs.prediction", "relaqs_bootstrap.arrays"},
    "sharing": {"relaqs.sharing", "relaqs.prediction", "relaqs_bootstrap.arrays"},
    "policies": {
        "relaqs.policies",
        "relaqs.sharing",
        "relaqs.prediction",
        "relaqs_bootstrap.arrays",
        "relaqs.plugins",
        "relaqs_engine.errors",
        "relaqs_bootstrap",  # `on_first_use`, and no module of the package
    },
    "lab/groups": {"relaqs_lab.groups", "relaqs.sharing.view", "relaqs_bootstrap.arrays"},
    "lab/group_policies": {
        "relaqs_lab.group_policies",
        "relaqs_lab.groups",
        "relaqs_bootstrap.arrays",
        "relaqs.plugins",
        "relaqs.policies.registry",
    },
    "slot_policies": {
        "relaqs.slot_policies",
        "relaqs.sharing",
        "relaqs.prediction",
        "relaqs_bootstrap.arrays",
    },
    "lab/slot_baselines": {
        "relaqs_lab.slot_baselines",
        "relaqs.slot_policies",
        "relaqs.sharing.gangs",
        "relaqs.prediction",
        "relaqs_bootstrap.arrays",
    },
    "lab/placed_baselines": {"relaqs.placed_policies", "relaqs.sharing.parts", "relaqs_bootstrap.arrays"},
    "placed_policies": {
        "relaqs.placed_policies",
        "relaqs.sharing.parts",
        "relaqs_bootstrap.arrays",
        "importlib.resources",  # weights that come with the package are read once, when a policy is made
        "zipfile",
        "zlib",  # its error, of a damaged file
    },
    "scheduling": {
        "relaqs.scheduling",
        "relaqs.policies",
        "relaqs.sharing",
        "relaqs.prediction",
        "relaqs.jobs.job",
        "relaqs_bootstrap.arrays",
    },
    "jobs/job.py": {"relaqs.sharing.view"},
}
HARMLESS = {
    "__future__",
    "collections",
    "dataclasses",
    "difflib",
    "functools",
    "enum",
    "inspect",
    "itertools",
    "math",
    "numpy",
    "typing",
    "warnings",
}


def modules_of(part: str) -> list[Path]:
    room = part.removeprefix("lab/")
    path = (RELAQS if room == part else LAB) / room
    return [path] if path.suffix else sorted(path.rglob("*.py"))


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def is_allowed(module: str, part: str) -> bool:
    rooms = MAY_IMPORT[part] - {"relaqs_bootstrap"}
    own = module in MAY_IMPORT[part] or any(module.startswith(f"{name}.") for name in rooms)
    return own or module.split(".")[0] in HARMLESS


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports(part: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules_of(part)
        for module in imports(ast.parse(path.read_text(encoding="utf-8")))
        if not is_allowed(module, part)
    ]
    assert wrong == []


def test_executors_reach_accounts_and_plans_through_the_desk_alone() -> None:
    named = {
        (path.name, alias.name)
        for path in modules_of("executors")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {path for path, name in named if name in ("Allocator", "Account")} == set()
    assert {path for path, name in named if name == "Desk"} == {"plugin.py", "threads.py"}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_no_random_numbers(part: str) -> None:
    users = [
        path.name
        for path in modules_of(part)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "random"
    ]
    assert users == []
