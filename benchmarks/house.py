"""How the code is built, in numbers: rooms, walks, circles, names and examples, of one tree or of two.

    python -m benchmarks.house [TREE ...]

Each TREE is a checkout of this project; without one, this checkout is measured. Nearly all figures are read
from syntax trees, and nothing of the measured tree is imported. One is measured by running a query: the files
in which code runs between `online_sql` and the first snapshot, modules that are loaded on the way included.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "relaqs": ".",
    "relaqs_engine": "engine",
    "relaqs_bootstrap": "bootstrap",
    "relaqs_lab": "lab",
    "relaqs_tpch": "tpch",
    "relaqs_dashboards": "dashboards",
}
# What runs a job for a user: between them, an event should have one listener with named methods.
RUNS_A_JOB = {
    "Session",
    "OnlineQuery",
    "Publisher",
    "JobRunner",
    "RunningJobs",
    "Handle",
    "Listener",
    "RunListener",
}
KIND_FIELDS = {"around", "refinement", "returns_rows"}
PUBLIC = ("relaqs", "relaqs.policies", "relaqs.training", "relaqs.pacing", "relaqs.dbapi", "relaqs_bootstrap")
PLAN_TYPES = {
    "OnlinePlan",
    "MergePlan",
    "RowsPlan",
    "AroundPlan",
    "RefinedPlan",
    "WholePlan",
    "SampledThenExact",
}


@dataclass(frozen=True)
class Tree:
    """The product's modules in one checkout, by dotted name."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.paths.items()}

    @cached_property
    def paths(self) -> dict[str, Path]:
        found = {}
        for package, folder in FOLDERS.items():
            base = self.root / folder
            for path in sorted((base / package).rglob("*.py")):
                parts = path.relative_to(base).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def nodes(self) -> Iterator[tuple[str, ast.AST]]:
        for name, tree in self.modules.items():
            for node in ast.walk(tree):
                yield name, node

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """The modules that each module imports, those under TYPE_CHECKING included."""
        return {name: self._imported(name) for name in self.modules}

    def _imported(self, name: str) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(self.modules[name]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {each if each in self.modules else node.module for each in inner}
        return (found & self.modules.keys()) - {name}


def loose_modules(package: str) -> Callable[[Tree], int]:
    """Return what counts the modules that lie at a package's root, in no room."""

    def count(tree: Tree) -> int:
        folder = tree.root / FOLDERS[package] / package
        return sum(not path.name.startswith("__") for path in folder.glob("*.py"))

    return count


def import_circles(tree: Tree) -> int:
    """Return how many groups of modules import each other, directly or by others."""
    reaches = {name: _reached(tree, name) for name in tree.modules}
    groups = {
        frozenset(other for other in reaches[name] if name in reaches[other])
        for name in tree.modules
        if name in reaches[name]
    }
    return len(groups)


def _reached(tree: Tree, start: str) -> set[str]:
    found: set[str] = set()
    pending = list(tree.arrows[start])
    while pending:
        if (name := pending.pop()) not in found:
            found.add(name)
            pending += tree.arrows[name]
    return found


def kind_questions(tree: Tree) -> int:
    """Return the places that ask what kind of plan there is; one `match` over the types is one place."""
    return sum(_asks_for_a_kind(node) for _, node in tree.nodes())


def _asks_for_a_kind(node: ast.AST) -> bool:
    if isinstance(node, ast.Match):
        patterns = {ast.unparse(case.pattern).split("(")[0] for case in node.cases}
        return bool(patterns & PLAN_TYPES)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        return any(name in ast.unparse(node.args[1]) for name in PLAN_TYPES)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        attributes = {side.attr for side in sides if isinstance(side, ast.Attribute)}
        words = {side.value for side in sides if isinstance(side, ast.Constant)}
        named = any("Mode." in ast.unparse(side) for side in sides)
        is_mode = "mode" in attributes and (named or words & {"exact", "refined", "mergeable"})
        return bool(is_mode or (attributes & KIND_FIELDS and None in words))
    if isinstance(node, ast.Attribute) and node.attr == "returns_rows":
        return isinstance(node.ctx, ast.Load)
    return False


def largest_plan(tree: Tree) -> int:
    """Return the number of fields of the largest type of plan, those it inherits included."""
    classes = {node.name: node for _, node in tree.nodes() if isinstance(node, ast.ClassDef)}

    def fields(name: str) -> int:
        if (node := classes.get(name)) is None:
            return 0
        own = sum(
            isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation)
            for line in node.body
        )
        return own + sum(fields(ast.unparse(base)) for base in node.bases)

    return max(fields(name) for name in PLAN_TYPES)


def callbacks(tree: Tree) -> int:
    """Return the parameters that are functions, of what runs a job for a user."""
    found = 0
    for name, node in tree.nodes():
        if isinstance(node, ast.ClassDef) and node.name in RUNS_A_JOB and name.startswith("relaqs."):
            for method in ast.walk(node):
                if isinstance(method, ast.FunctionDef):
                    given = [*method.args.args, *method.args.kwonlyargs]
                    found += sum(
                        "Callable" in ast.unparse(each.annotation) for each in given if each.annotation
                    )
    return found


def twins(tree: Tree) -> int:
    """Return the names of classes and type aliases that stand for two things in one package."""
    seen: Counter[tuple[str, str]] = Counter()
    for name, module in tree.modules.items():
        package = name.split(".")[0]
        for node in module.body:
            if isinstance(node, ast.ClassDef):
                seen[package, node.name] += 1
            elif (alias := _alias(node)) is not None:
                seen[package, alias] += 1
    return sum(count > 1 for count in seen.values())


def _alias(node: ast.stmt) -> str | None:
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return next((name for name in names if name[0].isupper() and not name.isupper()), None)


def shown_by_example(tree: Tree) -> float:
    """Return the share of the public names whose docstring has an example, in percent.

    Public is what the `__all__` of a public package lists. Exceptions need no example, so they are left out.
    """
    public = {name for where, node in tree.nodes() if where in PUBLIC for name in _listed(node)}
    shown: dict[str, bool] = {}
    for _, node in tree.nodes():
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if node.name in public and not node.name.endswith("Error"):
            shown[node.name] = shown.get(node.name, False) or ">>>" in (ast.get_docstring(node) or "")
    return 100 * sum(shown.values()) / len(shown)


def _listed(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "__all__":
        return []
    return [str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)]


WALK = """
import sys, tempfile, threading
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet
import relaqs
folder = Path(tempfile.mkdtemp())
table = pa.table({"k": [i % 3 for i in range(9000)], "x": list(range(9000))})
pyarrow.parquet.write_table(table, folder / "p.parquet")
files = set()
def note(frame, event, argument):
    if event == "call" and walks:
        files.add(frame.f_code.co_filename)
walks = False
threading.setprofile(note)  # of threads that start from now on
relaqs.shuffle(table, folder / "warehouse" / "t", partitions=9)
def walk(db):
    if sys.argv[1] == "train":
        from relaqs.training import KMeans
        run = db.train(KMeans("SELECT k, x FROM t", clusters=2))
        run.result()
    elif sys.argv[1] == "plain":
        db.sql("SELECT k, sum(x) FROM p GROUP BY k")
    else:
        next(db.online_sql("SELECT k, sum(x) FROM t GROUP BY k"))
place = folder / "p.parquet" if sys.argv[1] == "plain" else folder / "warehouse"
with relaqs.connect(place, threads=1) as db:
    sys.setprofile(note)
    walks = True
    walk(db)
    walks = False
    sys.setprofile(None)
ours = [name for name in files if "/relaqs" in name and "site-packages" not in name]
print(len(ours))
"""


def walked_files(kind: str) -> Callable[[Tree], int]:
    """Return what counts the files in which code of any thread runs, modules loaded on the way included.

    kind: "query" from SQL to the first snapshot, "plain" from SQL over a plain file to its answer, or "train"
    from a training job to its model.
    """

    def count(tree: Tree) -> int:
        places = os.pathsep.join(str(tree.root / folder) for folder in FOLDERS.values())
        done = subprocess.run(
            [sys.executable, "-c", WALK, kind],
            env={**os.environ, "PYTHONPATH": places},
            capture_output=True,
            text=True,
            check=True,
            cwd=tree.root,
        )
        return int(done.stdout.split()[-1])

    return count


CORE = ("relaqs", "relaqs_engine", "relaqs_bootstrap")


def core_lines(tree: Tree) -> int:
    """Return how many lines the core's packages have, with their docstrings."""
    own = [path for name, path in tree.paths.items() if name.split(".")[0] in CORE]
    return sum(path.read_text(encoding="utf-8").count("\n") for path in own)


SHORTEST_FILE_LINES = 80


def files(tree: Tree) -> int:
    """Return how many files of product code there are."""
    return len(tree.paths)


def short_files(tree: Tree) -> int:
    """Return the files below the band of sizes. What a folder says of itself may be short."""
    own = [path for path in tree.paths.values() if not path.name.startswith("__")]
    return sum(path.read_text(encoding="utf-8").count("\n") < SHORTEST_FILE_LINES for path in own)


def shared_file_names(tree: Tree) -> int:
    """Return the names that two files of one package have."""
    seen = Counter((name.split(".")[0], path.name) for name, path in tree.paths.items())
    return sum(count > 1 for (_, name), count in seen.items() if not name.startswith("__"))


FIGURES: tuple[tuple[str, Callable[[Tree], float], str], ...] = (
    ("loose modules in relaqs", loose_modules("relaqs"), "≤ 8"),
    ("loose modules in relaqs_engine", loose_modules("relaqs_engine"), "≤ 8"),
    ("files", files, "≤ 450"),
    ("lines of the core", core_lines, "≤ 66,000"),
    (f"files under {SHORTEST_FILE_LINES} lines", short_files, "0"),
    ("names of two files in a package", shared_file_names, "0"),
    ("files called from SQL to the first snapshot", walked_files("query"), "≤ 70"),
    ("files called from SQL over a plain file to its answer", walked_files("plain"), "≤ 70"),
    ("files called from a training job to its model", walked_files("train"), "≤ 60"),
    ("places that ask for a plan's kind", kind_questions, "≤ 5"),
    ("fields of the largest plan", largest_plan, "≤ 15"),
    ("callbacks of what runs a job", callbacks, "≤ 2"),
    ("import circles", import_circles, "0"),
    ("names that mean two things in a package", twins, "0"),
    ("public names with an example, %", shown_by_example, "100"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], help="checkouts of this project")
    trees = [Tree(path.resolve()) for path in parser.parse_args().trees]
    table = Table("", *(tree.root.name for tree in trees), "wanted", box=SIMPLE_HEAD)
    for name, figure, wanted in FIGURES:
        table.add_row(name, *(f"{figure(tree):.0f}" for tree in trees), wanted)
    Console().print(table)


if __name__ == "__main__":
    main()
