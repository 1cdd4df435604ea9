"""What the README and ARCHITECTURE.md say can be done, is done here; what they say exists, exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import early_picture

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BINARIES = Path(sys.executable).parent
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
CODE = ("bootstrap", "dashboards", "engine", "relaqs", "tpch")
SMALLER = {"--scale": "0.01"}  # what a test can wait for


def blocks(language: str) -> list[str]:
    """Return the README's fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return every command a reader is told to type."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def own_commands() -> list[list[str]]:
    """Return the words of every command of `relaqs`, with the sizes a test can wait for."""
    words = [shlex.split(command) for command in commands()]
    return [smaller(each) for each in words if each[0] == "relaqs"]


def run(command: list[str], folder: Path) -> str:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, f"{shlex.join(command)}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def smaller(words: list[str]) -> list[str]:
    """Return a command's words with the sizes a test can wait for."""
    words = [*words, "--scale", ""] if words[1:] == ["demo"] else words
    return [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a folder in which the README's commands were typed one after another, and what each printed."""
    folder = tmp_path_factory.mktemp("reader")
    printed = {}
    for program, *words in own_commands():
        printed[shlex.join([program, *words])] = run([str(BINARIES / program), *words], folder)
    return folder, printed


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 120


def test_what_is_installed_is_what_is_tried() -> None:
    others = {shlex.split(command)[0] for command in commands()} - {"relaqs"}
    assert others == {"pip", "make"}
    (install,) = (command for command in commands() if command.startswith("pip"))
    assert install == "pip install 'relaqs[demo]'"


def test_make_targets_exist() -> None:
    words = README + CONTRIBUTING + MAKEFILE.split("\n\n")[0]
    named = re.findall(r"\bmake ([a-z-]+)\b(?=`|$)", words, re.MULTILINE)
    assert {"demo", "check", "docs", "bench"} <= set(named) <= TARGETS


def test_the_hook_before_a_commit_runs_targets_that_exist() -> None:
    hook = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (targets,) = re.findall(r"^ +entry: make (.+)$", hook, re.MULTILINE)
    assert targets == "lint types"
    assert set(targets.split()) <= TARGETS


def test_ci_runs_the_readmes_check() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make check" in commands()
    assert re.search(r"^exec .*\bmake\b.* check test-slow$", script, re.MULTILINE)


@pytest.mark.slow
def test_every_command_runs_and_prints(typed: tuple[Path, dict[str, str]]) -> None:
    _, printed = typed
    assert len(printed) >= 3
    assert all(text.strip() for text in printed.values())
    (targeted,) = [text for command, text in printed.items() if "--target" in command]
    assert targeted.startswith("Estimate")


def words_of(printed: str) -> str:
    """Return what was printed without bars, which are as wide as the terminal."""
    return " ".join(re.sub("[─●]", " ", printed).split())


@pytest.mark.slow
def test_the_programs_run_as_written(typed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = typed
    first, sharing = (run([sys.executable, "-c", program], folder) for program in blocks("python"))
    printed = words_of(re.sub(r" · [\d.]+ s$", "", first, flags=re.MULTILINE))
    assert all(words_of(shown) in printed for shown in blocks("text")[0].split("\nExact\n"))
    assert "\nExact · " in first
    assert "training" in sharing


@pytest.mark.slow
def test_make_demo_runs_the_demo(tmp_path: Path) -> None:
    assert re.search(r"^demo: .*\n\t@\$\(BIN\)/relaqs demo$", MAKEFILE, re.MULTILINE)
    printed = run([str(BINARIES / "relaqs"), "demo", "--scale", "0.01"], tmp_path)
    assert "The last answer equals DuckDB's." in printed


def test_the_picture_ends_in_the_true_answer(flights_oracle) -> None:
    program, _ = blocks("python")
    (picture,) = blocks("text")
    sql = re.search(r'"""(.*?)"""', program, re.DOTALL)[1]
    last = picture[picture.index("Exact") :]
    for origin, late, count in flights_oracle.rows(sql):
        (row,) = [line.split() for line in last.splitlines() if line.startswith(origin)]
        assert row[1] == f"{late:.6g}"  # as a screen shows it
        assert row[2] == f"{count:,}"


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_path_named_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    in_code = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", text)
    in_drawings = re.findall(
        r"\b((?:bootstrap|engine|relaqs|tpch|tests|docs|dashboards|benchmarks)/[\w./-]*\w)", text
    )
    linked = re.findall(r"\]\(([\w./-]+)\)", text)
    missing = {path for path in [*in_code, *in_drawings, *linked] if not (ROOT / path).exists()}
    assert missing == set()


def test_the_map_has_every_folder_of_code() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    doors = [door for root in CODE for door in (ROOT / root).rglob("__init__.py")]
    folders = [door.parent.relative_to(ROOT) for door in doors]
    assert {f for f in folders if not re.search(rf"`{f}[`/]|`{f.name}`", text)} == set()


@pytest.mark.parametrize("folder", CODE)
def test_every_page_that_code_points_to_exists(folder: str) -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py"))
    pages = set(re.findall(r"docs/[\w/.-]+\.md", code))
    assert {page for page in pages if not (ROOT / page).exists()} == set()


def test_the_moving_picture_sharpens_ends_exact_and_fetches_nothing() -> None:
    """`python -m benchmarks.terminal_picture docs/terminal.svg` draws it anew."""
    picture = (ROOT / "docs" / "terminal.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    read = [float(share) for share in re.findall(r"Estimate · ([\d.]+) % of rows", picture)]
    errors = [float(error) for error in re.findall(r"rows · ± ([\d.]+) %", picture)]
    assert len(read) >= 3
    assert read == sorted(read)
    assert errors == sorted(errors, reverse=True)
    assert picture.count("Exact · ") == 1
    assert not re.findall(r"url\((?!#)|https?://(?!www\.w3\.org/2000/svg)|<script", picture)


def test_the_chart_of_early_answers_shows_the_table_of_the_benchmarks() -> None:
    """`python -m benchmarks.early_picture docs/early.svg` draws it anew."""
    queries = early_picture.timed(early_picture.PAGE.read_text(encoding="utf-8"))
    assert len(queries) >= 15
    assert (ROOT / "docs" / "early.svg").read_text(encoding="utf-8") == early_picture.drawn(queries)
