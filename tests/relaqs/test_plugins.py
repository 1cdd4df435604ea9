"""An installed package adds a policy, an algorithm, a command and a face; a broken one harms nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.layouts import shuffle

PROGRAM = (sys.executable, "-m", "relaqs")

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

import click
import numpy as np

from relaqs.policies import Plan
from relaqs.training import Iteration


@dataclass(frozen=True)
class Coin:
    name: ClassVar[str] = "coin"
    why_more: ClassVar[str] = "heads"

    def plan(self, view):
        return Plan(view.jobs.ids, np.zeros(len(view.jobs)), view.capacity_cores)


@dataclass(frozen=True)
class Mean:
    """The mean of each column. The loss is the largest square of a mean."""

    sql: str
    target: ClassVar[None] = None

    def begin(self, profile):
        return Iteration(None, lambda model, sums: (float((profile.mean**2).max()), profile.mean, True))

    def partial(self, model, rows):
        return (rows.features.sum(axis=0),)

    def estimator(self, profile, model):
        return profile.mean.tolist()


@click.command("roll")
@click.argument("sides", type=int)
def roll(sides):
    """Roll a die.

    More is said here.
    """
    click.echo(f"rolled one of {sides}")


def face(query, **look):
    return query.sql, look
'''

ENTRIES = """
[relaqs.commands]
roll = {name}.things:roll
[relaqs.policies]
coin = {name}.things:Coin
[relaqs.training]
mean = {name}.things:Mean
[relaqs.notebook]
{name} = {name}.things:face
"""


class Stranger:
    """A folder as `pip install --target` leaves it, and processes that find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, module: str = MODULE, entries: str = ENTRIES) -> None:
        package = self.folder / name.replace("-", "_")
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "things.py").write_text(module)
        metadata = self.folder / f"{package.name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entries.format(name=package.name))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.folder), *filter(None, sys.path)])
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def printed(self, program: str, *arguments: str) -> list[str]:
        done = self.run(sys.executable, "-c", program, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path / "site")


def test_a_command_of_another_package(stranger: Stranger) -> None:
    stranger.install("dice")
    done = stranger.run(*PROGRAM, "roll", "6")
    assert (done.returncode, done.stdout, done.stderr) == (0, "rolled one of 6\n", "")
    assert "  roll       Roll a die.\n" in stranger.run(*PROGRAM, "--help").stdout


def test_help_imports_no_command(stranger: Stranger) -> None:
    stranger.install("dice", module="raise RuntimeError('imported')\n")
    done = stranger.run(sys.executable, "-v", "-m", "relaqs", "--help")
    assert done.returncode == 0
    imported = {line.split()[1].strip("'") for line in done.stderr.splitlines() if line.startswith("import ")}
    assert not imported & {
        "dice",
        "dice.things",
        "relaqs_tpch",
        "relaqs_dashboards",
        "relaqs.cli.sql",
        "numpy",
    }
    assert "roll       Of the package dice." in done.stdout


def test_a_policy_of_another_package(stranger: Stranger) -> None:
    stranger.install("dice")
    program = """
import relaqs
from relaqs.policies import POLICIES, make_policy, why_cores_moved
print(list(POLICIES)[-1], make_policy("coin"), why_cores_moved("coin", is_more=True))
with relaqs.connect("{}", policy="coin") as session:
    print(session.status().policy)
"""
    warehouse = stranger.folder / "warehouse"
    shuffle(duckdb.sql("SELECT i AS x FROM range(100) AS t(i)"), warehouse / "rows", partitions=4)
    assert stranger.printed(program.format(warehouse)) == ["coin Coin() heads", "coin"]


def test_a_training_algorithm_of_another_package(stranger: Stranger) -> None:
    stranger.install("dice")
    warehouse = stranger.folder / "warehouse"
    shuffle(duckdb.sql("SELECT i AS x FROM range(101) AS t(i)"), warehouse / "rows", partitions=4)
    program = f"""
import relaqs
from relaqs.training import ALGORITHMS, make_training_job
print(list(ALGORITHMS)[-1])
with relaqs.connect({str(warehouse)!r}) as session:
    print(session.train(make_training_job("mean", "SELECT x FROM rows")).result())
"""
    assert stranger.printed(program) == ["mean", "[50.0]"]


def test_a_face_of_another_package(stranger: Stranger) -> None:
    stranger.install("dice")
    warehouse = stranger.folder / "warehouse"
    shuffle(duckdb.sql("SELECT i AS x FROM range(101) AS t(i)"), warehouse / "rows", partitions=4)
    program = f"""
import relaqs
with relaqs.connect({str(warehouse)!r}) as session:
    query = session.online_sql("SELECT sum(x) FROM rows")
    print(query.display(face="dice", title="Sum"))
    try:
        query.display(face="dise")
    except relaqs.ArgumentError as error:
        print(error)
"""
    shown, refused = stranger.printed(program)
    assert shown == "('SELECT sum(x) FROM rows', {'title': 'Sum'})"
    assert refused == "there is no face 'dise' for notebooks; the installed ones are dashboard, dice"


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (
            "1 / 0\n",
            "the command 'roll' of the package dice cannot be loaded from dice.things:roll: "
            "ZeroDivisionError: division by zero; update or uninstall the package",
        ),
        (
            "roll = print\n",
            "dice.things:roll of the package dice is <built-in function print>, which is no command",
        ),
        ("", "AttributeError: module 'dice.things' has no attribute 'roll'"),
        ("import relaqs.gone\n", "ModuleNotFoundError: No module named 'relaqs.gone'"),
        ("import no_such_library\n", "of the package dice needs no_such_library, which is not installed"),
    ],
)
def test_a_broken_package_is_named_and_breaks_nothing_else(
    stranger: Stranger, module: str, complaint: str
) -> None:
    stranger.install("dice", module=module)
    done = stranger.run(*PROGRAM, "roll", "6")
    assert (done.returncode, done.stdout) == (1, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert stranger.run(*PROGRAM, "--help").returncode == 0
    assert stranger.run(*PROGRAM, "simulate", "--help").returncode == 0


def test_two_packages_with_one_name_are_both_named(stranger: Stranger) -> None:
    stranger.install("dice")
    stranger.install("other-dice")
    done = stranger.run(*PROGRAM, "roll", "6")
    assert done.returncode == 1
    assert "there are 2 command plug-ins 'roll', of the packages dice and other-dice" in done.stderr
    assert stranger.run(*PROGRAM, "--help").returncode == 0


def test_our_own_names_stay_ours(stranger: Stranger) -> None:
    entries = """
[relaqs.commands]
sql = {name}.things:roll
tpch = {name}.things:roll
[relaqs.policies]
fair = {name}.things:Coin
"""
    stranger.install("dice", entries=entries)
    assert "Answer SELECT online" in stranger.run(*PROGRAM, "sql", "--help").stdout
    assert "TPC-H data, queries" in stranger.run(*PROGRAM, "tpch", "--help").stdout
    program = "from relaqs.policies import POLICIES, make_policy; print(make_policy('fair'), len(POLICIES))"
    assert stranger.printed(program) == ["Fair() 12"]
