"""The packages as they would be published: built, installed where nothing of the repository is, and used."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from deploy.package_page import addresses, page
from tests.test_readme import blocks, own_commands

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "https://example.org/team/relaqs"


def _relative_links(text: str) -> list[str]:
    return re.findall(r"\]\((?![a-z]+:|#)([^)]+)\)", text)


def test_the_readme_has_links_that_work_on_an_index() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert _relative_links(readme)
    published = page(readme, SOURCE, "v0.1.0")
    assert _relative_links(published) == []
    assert f"]({SOURCE}/blob/v0.1.0/docs/index.md)" in published
    assert f"]({SOURCE}/raw/v0.1.0/docs/dashboard.png)" in published


def test_without_an_address_words_stay_and_links_go() -> None:
    assert page("A ![picture](a.png) [b](c.md) [d](https://e.org)", "", "main") == "A  b [d](https://e.org)"


def test_what_only_the_demo_needs_is_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {re.split(r"[\[<>=~!; ]", each)[0] for each in project["dependencies"]}
    assert "tpchgen-cli" not in core
    assert any(each.startswith("tpchgen-cli") for each in project["optional-dependencies"]["demo"])


def test_all_has_every_extra_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (every,) = extras["all"]
    named = every.removeprefix("relaqs[").removesuffix("]").split(",")
    assert sorted(named) == sorted(set(extras) - {"all", "dev", "lab", "torch"})


def test_dev_has_what_every_extra_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {extra: {re.split(r"[\[<>=~!; ]", each)[0] for each in extras[extra]} for extra in extras}
    assert {extra: names[extra] - names["dev"] for extra in extras if extra != "all"} == {
        extra: set() for extra in extras if extra != "all"
    }


def test_an_index_has_addresses_if_the_source_is_published() -> None:
    assert addresses("", "main") == {}
    assert set(addresses(SOURCE, "v0.1.0")) == {"Source", "Documentation", "Changelog"}
    assert addresses(SOURCE, "v0.1.0")["Changelog"] == f"{SOURCE}/blob/v0.1.0/CHANGELOG.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment that has the wheel, and nothing of the repository.

    The packages that the wheel needs are those of this environment. So nothing is fetched.
    """
    folder = tmp_path_factory.mktemp("packages")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=240)
    venv.create(folder / "empty", with_pip=True)
    programs = folder / "empty" / ("Scripts" if sys.platform == "win32" else "bin")
    (wheel,) = folder.glob("*.whl")
    install = [programs / "python", "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=240)
    asked = [programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    Path(packages, "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return programs


def _run(programs: Path, folder: Path, *command: str) -> str:
    environment = {"PATH": str(programs), "HOME": str(folder), "RELAQS_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [programs / command[0], *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_both_packages_hold_what_is_used(installed: Path) -> None:
    folder = installed.parents[1]
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {
        "relaqs",
        "relaqs_bootstrap",
        "relaqs_dashboards",
        "relaqs_engine",
        "relaqs_lab",
        "relaqs_tpch",
    }
    with tarfile.open(source) as inside:
        parts = {name.split("/")[1] for name in inside.getnames() if name.count("/")}
    assert {"relaqs", "tests", "docs", "deploy", "pyproject.toml", "LICENSE"} <= parts


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = _run(installed, tmp_path, "python", "-c", "import relaqs; print(relaqs.__file__)")
    assert str(installed.parents[1]) in where
    assert "exact" in _run(installed, tmp_path, "relaqs", "demo", "--scale", "0.01")


@pytest.mark.slow
def test_the_readme_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    for words in own_commands():
        assert _run(installed, tmp_path, *words).strip()
    for program in blocks("python"):
        assert _run(installed, tmp_path, "python", "-c", program).strip()


@pytest.mark.slow
def test_the_dashboard_serves_its_bundle_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    _run(installed, tmp_path, "relaqs", "demo", "--scale", "0.01")
    command = [installed / "relaqs", "dashboard", "--data", "demo-data", "--port", "0"]
    environment = {"PATH": str(installed), "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            origin = "/".join(address.split("/")[:3])
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            first = opener.open(address, timeout=30).read().decode()
            names = re.findall(r'"(/[^"?]+\.(?:js|css))', first)
            assert names
            for name in names:
                assert len(opener.open(origin + name, timeout=30).read()) > 1000
        finally:
            process.terminate()
