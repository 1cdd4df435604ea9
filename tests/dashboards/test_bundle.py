"""The bundle that is shipped: made of the sources as they are, whole, with the licences of what is in it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from relaqs_dashboards.settings import CHARTS

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "dashboards" / "web"
STATIC = ROOT / "dashboards" / "relaqs_dashboards" / "static"
BUNDLES = ("app.js", "editor.js", "panel.js", "app.css")


def fingerprint() -> str:
    """Return the SHA-256 that `dashboards/web/build.mjs` writes into every file it makes."""
    files = [path for path in (WEB / "src").rglob("*") if path.is_file()]
    names = sorted(
        path.relative_to(WEB).as_posix() for path in [*files, WEB / "build.mjs", WEB / "package.json"]
    )
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (WEB / name).read_bytes() + b"\0")
    return digest.hexdigest()


@pytest.mark.parametrize("name", BUNDLES)
def test_the_bundle_is_made_of_the_sources_as_they_are(name: str) -> None:
    head = (STATIC / name).read_text(encoding="utf-8").split("\n", 1)[0]
    assert fingerprint() in head, f"{name} is older than its sources: run `npm run build` in dashboards/web"


def test_no_source_is_fetched_at_run_time() -> None:
    """The page works offline: nothing in the bundle names another host, but for namespaces and messages."""
    for name in BUNDLES:
        text = (STATIC / name).read_text(encoding="utf-8")
        assert not re.search(r"""(?:import|fetch|url)\s*\(\s*["']?(?:https?:)?//""", text), name
        assert "eval(" not in text, name
        assert "new Function(" not in text, name


def test_text_never_becomes_html() -> None:
    for path in (WEB / "src").rglob("*.ts"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\.html\(", text), path


def test_the_page_draws_every_kind_of_chart_that_the_server_offers() -> None:
    drawn = re.findall(
        r'^  \["(\w+)", \w+\],$', (WEB / "src/charts/index.ts").read_text("utf-8"), re.MULTILINE
    )
    assert drawn == list(CHARTS)


def test_every_package_has_one_exact_version() -> None:
    package = json.loads((WEB / "package.json").read_text(encoding="utf-8"))
    versions = package["devDependencies"] | package["overrides"]
    assert [name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []


def test_what_was_bundled_ships_with_its_licence() -> None:
    licences = (STATIC / "LICENSES.txt").read_text(encoding="utf-8")
    for package in ("d3-scale", "d3-selection", "d3-shape", "codemirror", "@codemirror/view", "@lezer/lr"):
        assert re.search(rf"^{re.escape(package)} \d+\.\d+\.\d+$", licences, re.MULTILINE), package
