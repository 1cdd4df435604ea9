"""How the code is built, in numbers: rooms, walks, circles, names and examples, of one tree or of two.

    python -m benchmarks.house [TREE ...]

Each TREE is a checkout of this project; without one, this checkout is measured. Nearly all figures are read
from syntax trees, and nothing of the measured tree is imported. One is measured by running a query: the files
in which a function is called between `online_sql` and the first snapshot.
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
RUNS_A_JOB = ("session", "online_query", "publisher", "runner", "handle", "listener")
KIND_FIELDS = {"around", "refinement", "returns_rows"}
PUBLIC = ("relaqs", "relaqs.policies", "relaqs.training", "relaqs.pacing", "relaqs.dbapi", "relaqs_bootstrap")
PLAN_TYPES = {
    "OnlinePlan",
    "MergePlan",
    "RowsPlan",
    "AroundPlan",
    "RefinedPlan",
    "WholePlan",
    "RowGroupPlan",
    "FirstPartPlan",
    "SummaryPlan",
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
        is_there = name.startswith("relaqs.") and name.rsplit(".", 1)[-1] in RUNS_A_JOB
        if is_there and isinstance(node, ast.FunctionDef) and "training" not in name:
            given = [*node.args.args, *node.args.kwonlyargs]
            found += sum("Callable" in ast.unparse(each.annotation) for each in given if each.annotation)
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
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if _annotated(node) else []
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return next((name for name in names if name[0].isupper() and not name.isupper()), None)


def _annotated(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign)


def shown_by_example(tree: Tree) -> float:
    """Return the share of the public names whose docstring has an example, in percent.

    Public is what the `__all__` of a public package lists. Exceptions need no example, so they are left out.
    """
    public = {name for where, node in tree.nodes() if where in PUBLIC for name in _listed(node)}
    shown: dict[str, bool] = {}
    for _, node in tree.nodes():
        is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if is_definition and node.name in public and not node.name.endswith("Error"):
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
import relaqs
folder = Path(tempfile.mkdtemp()) / "t"
relaqs.shuffle(pa.table({"k": [i % 3 for i in range(9000)], "x": list(range(9000))}), folder, partitions=9)
db = relaqs.connect(folder.parent, threads=1)
files = set()
def note(frame, event, argument):
    if event == "call":
        files.add(frame.f_code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
query = db.online_sql("SELECT k, sum(x) FROM t GROUP BY k")
next(query)
sys.setprofile(None)
threading.setprofile(None)
ours = [name for name in files if "/relaqs" in name and "site-packages" not in name]
print(len(ours))
db.close()
"""


def walked_files(tree: Tree) -> int:
    """Return the files in which a function is called from SQL to the first snapshot, on one thread."""
    places = os.pathsep.join(str(tree.root / folder) for folder in FOLDERS.values())
    done = subprocess.run(
        [sys.executable, "-c", WALK],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=True,
        cwd=tree.root,
    )
    return int(done.stdout)


FIGURES: tuple[tuple[str, Callable[[Tree], float], str], ...] = (
    ("loose modules in relaqs", loose_modules("relaqs"), "≤ 8"),
    ("loose modules in relaqs_engine", loose_modules("relaqs_engine"), "≤ 8"),
    ("files called from SQL to the first snapshot", walked_files, "≤ 35"),
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
