"""The house rules that no compiler checks: who may import whom, and what every file owes its reader."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import LONGEST, MARKED, SLOW_FILES

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = {
    "relaqs_bootstrap": ROOT / "bootstrap" / "relaqs_bootstrap",
    "relaqs_engine": ROOT / "engine" / "relaqs_engine",
    "relaqs": ROOT / "relaqs",
    "relaqs_lab": ROOT / "lab" / "relaqs_lab",
    "relaqs_tpch": ROOT / "tpch" / "relaqs_tpch",
    "relaqs_dashboards": ROOT / "dashboards" / "relaqs_dashboards",
}

# Arrows point downward only, one way. What lies above is found by entry points: see `relaqs/plugins.py`.
MAY_IMPORT = {
    "relaqs_bootstrap": {"numpy"},
    "relaqs_engine": {
        "relaqs_bootstrap",
        "sqlglot",
        "duckdb",
        "pyarrow",
        "numpy",
        "xxhash",
        "pyiceberg",
        "obstore",
        "boto3",
        "portalocker",
    },
    "relaqs": {
        "relaqs_bootstrap",
        "relaqs_engine",
        "dask",
        "distributed",
        "fsspec",
        "pyarrow",
        "numpy",
        "cloudpickle",
        "pandas",
        "openai",
        "polars",
        "rich",
        "click",
        "prompt_toolkit",
        "psutil",
        "prometheus_client",
        "opentelemetry",
        "IPython",
        "mcp",
        "scipy",
        "sklearn",
        "threadpoolctl",
        "torch",
        "xgboost",
        "sqlalchemy",
        "ibis",
        "sqlglot",
        "matplotlib",
        "pygwire",
        "scramp",
        "tomli_w",
        "xxhash",
    },
    "relaqs_lab": {
        "relaqs",
        "relaqs_engine",
        "relaqs_bootstrap",
        "click",
        "matplotlib",
        "numpy",
        "pyarrow",
        "rich",
        "scipy",
        "torch",
    },
    "relaqs_tpch": {
        "relaqs",
        "relaqs_lab",
        "relaqs_engine",
        "relaqs_bootstrap",
        "click",
        "matplotlib",
        "numpy",
        "pyarrow",
        "rich",
    },
    "relaqs_dashboards": {
        "relaqs",
        "relaqs_engine",
        "starlette",
        "uvicorn",
        "tomli_w",
        "pyarrow",
        "click",
        "anywidget",
        "sqlglot",
        "traitlets",
    },
}
UPPER_FLOORS = ("relaqs_lab", "relaqs_tpch", "relaqs_dashboards")

# Pure code gets the clock and the random generator passed in, and leaves concurrency to its caller.
PURE = ("relaqs_bootstrap", "relaqs_engine")
NOT_IN_PURE = {"asyncio", "concurrent", "multiprocessing", "random", "sched", "threading", "time"}

# The edges: each library is called from one place, a module or a package.
ONLY_IN = {
    "duckdb": PACKAGES["relaqs_engine"] / "duck.py",
    "obstore": PACKAGES["relaqs_engine"] / "stores" / "object_folder.py",
    "portalocker": PACKAGES["relaqs_engine"] / "shared_files.py",
    "psutil": PACKAGES["relaqs"] / "memory.py",
    "dask": PACKAGES["relaqs"] / "executors" / "dask",
    "distributed": PACKAGES["relaqs"] / "executors" / "dask",
    "IPython": PACKAGES["relaqs"] / "notebook",
    "mcp": PACKAGES["relaqs"] / "mcp",
}

LONGEST_FILE_LINES = 900
TEXT_SUFFIXES = {".py", ".sql", ".md", ".toml", ".txt", ".typed", ".json", ".ts", ".mjs", ".css", ""}
TEXT_SUFFIXES |= {".yml", ".yaml", ".service", ".sh"}
CODE_FOLDERS = ("bootstrap", "engine", "relaqs", "lab", "tpch", "dashboards")
MADE = {"__pycache__", "node_modules", ".build"}  # folders of files nobody wrote here
REGISTRIES = ("pypi org", "pythonhosted org", "npmjs org", "debian org", "crates io")
REGISTRY_HOSTS = tuple(name.replace(" ", ".") for name in REGISTRIES)  # spelt so that this file names none


def python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py"))


@dataclass(frozen=True)
class Module:
    """What the tests ask of a file: whether it has a docstring, and what it imports.

    imported: the top-level names of every absolute import, also of those inside functions.
    at_run_time: without what is imported for annotations alone.
    """

    is_described: bool
    imported: frozenset[str]
    at_run_time: frozenset[str]


@cache
def module_at(path: Path) -> Module:
    """Return what a file is. It is parsed once for all tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = _imported(tree)
    return Module(bool(ast.get_docstring(tree)), imported, _imported(WithoutTypeChecking().visit(tree)))


def imported_modules(path: Path, *, at_run_time: bool = False) -> frozenset[str]:
    module = module_at(path)
    return module.at_run_time if at_run_time else module.imported


def _imported(tree: ast.AST) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return frozenset(names)


class WithoutTypeChecking(ast.NodeTransformer):
    """Drops what stands under `if TYPE_CHECKING:`."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def product_files() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in python_files(folder):
            yield package, path


def text_files() -> Iterator[Path]:
    """Yield every text file of the project: those at the root, and those below its own folders."""
    own = [ROOT / name for name in (*CODE_FOLDERS, "tests", "benchmarks", "docs", "deploy", ".github")]
    candidates = [
        *ROOT.iterdir(),
        *(ROOT / ".ci").iterdir(),
        *(p for folder in own for p in folder.rglob("*")),
    ]
    for path in candidates:
        if path.is_file() and path.suffix in TEXT_SUFFIXES and not MADE.intersection(path.parts):
            yield path


def test_imports_point_downward() -> None:
    wrong = []
    for package, path in product_files():
        allowed = MAY_IMPORT[package] | {package} | sys.stdlib_module_names
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in imported_modules(path) - allowed]
    assert wrong == []


def test_the_core_imports_no_lab_and_no_dashboard_does() -> None:
    """Research stands beside the product: only the lab itself and the benchmark of TPC-H import it."""
    users = {package for package, path in product_files() if "relaqs_lab" in imported_modules(path)}
    assert users == {"relaqs_lab", "relaqs_tpch"}


def test_no_code_of_relaqs_names_what_lies_above_it() -> None:
    naming = [
        str(path.relative_to(ROOT))
        for path in python_files(PACKAGES["relaqs"])
        if any(floor in path.read_text(encoding="utf-8") for floor in UPPER_FLOORS)
    ]
    assert naming == []


def test_pure_packages_know_no_clock_no_threads_and_no_global_randomness() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for package, path in product_files()
        if package in PURE
        for name in imported_modules(path) & NOT_IN_PURE
    ]
    assert wrong == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_each_edge_is_one_place(library: str) -> None:
    users = {path for _, path in product_files() if library in imported_modules(path, at_run_time=True)}
    assert {path for path in users if not path.is_relative_to(ONLY_IN[library])} == set()


def test_only_modules_that_are_named_after_torch_import_it() -> None:
    users = {path.name for _, path in product_files() if "torch" in imported_modules(path, at_run_time=True)}
    assert {name for name in users if not name.startswith("torch_")} == set()


def test_every_folder_of_code_says_what_lives_there() -> None:
    folders = {path.parent for _, path in product_files()}
    silent = []
    for folder in sorted(folders):
        door = folder / "__init__.py"
        if not door.exists() or not module_at(door).is_described:
            silent.append(str(folder.relative_to(ROOT)))
    assert silent == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in [*(p for _, p in product_files()), *python_files(ROOT / "benchmarks")]
        if not module_at(path).is_described
    ]
    assert silent == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_ships_its_types(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").exists()


def test_no_file_is_longer_than_a_reader_holds() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in text_files()
        if path.suffix in {".py", ".sql", ".ts", ".mjs"}
        and (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE_LINES
    }
    assert long == {}


def test_what_make_asks_for_is_looked_for_in_few_files() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = set(re.findall(r'-m pytest -m "?([a-z ]+?)"?(?: -n .*)?$', makefile, re.MULTILINE))
    assert asked == {"not slow and not alone", *MARKED}
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    for written in MARKED.values():
        assert 0 < sum(written.search(text) is not None for text in files) < len(files) / 4


def test_what_begins_first_or_is_slow_is_there() -> None:
    assert [file for file in (*LONGEST, *SLOW_FILES) if not (ROOT / file).is_file()] == []


def test_no_registry_host_is_named() -> None:
    naming = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in text_files()
        for host in REGISTRY_HOSTS
        if host in path.read_text(encoding="utf-8")
    ]
    assert naming == []


def test_documents_that_are_cited_exist() -> None:
    """A document in capitals, as in "(NOTES: …)", "see NOTES" or NOTES.md, and records in docs/decisions."""
    in_capitals = re.compile(r"\(([A-Z]{4,}): |\b[Ss]ee ([A-Z]{4,})\b|\b([A-Z]{4,}\.md)\b")
    record = re.compile(r"\b(\d{4}-[a-z-]+\.md)\b")
    documents = [*text_files(), *(ROOT / "docs").rglob("*.md")]
    there = {name for path in documents for name in (path.name, path.stem)}
    missing = [
        f"{path.relative_to(ROOT)} cites {name}"
        for path in documents
        if path.suffix in {".py", ".md"} and path != Path(__file__)
        for pattern in (in_capitals, record)
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
        if (name := next(filter(None, match.groups()))) not in there
    ]
    assert missing == []


def test_files_and_classes_that_docstrings_name_exist() -> None:
    texts = {path: path.read_text(encoding="utf-8") for _, path in product_files()}
    files = {path.name for path in text_files()}
    names = {
        word for text in texts.values() for word in re.findall(r"^\s*(?:class )?([A-Z]\w+)\b", text, re.M)
    }
    named = re.compile(r"\b([a-z_]+\.py)\b|`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`")
    missing = [
        f"{path.relative_to(ROOT)} names {name}"
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for match in named.finditer(ast.get_docstring(node) or "")
        if (name := next(filter(None, match.groups()))) not in files | names
    ]
    assert missing == []


def test_constraints_pin_every_direct_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(
            name
            for extra in project["optional-dependencies"].values()
            for name in extra
            if name[:7] != "relaqs["
        ),
    ]
    pinned = re.findall(
        r"^([\w.-]+)==[\w.]+$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    missing = [name for text in wanted if (name := re.split(r"[\[<>=~! ]", text)[0]).lower() not in normal]
    assert missing == []
