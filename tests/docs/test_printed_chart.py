"""The chart that a how-to prints passes `npm run check` once it is among the others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks_of

WEB = ROOT / "dashboards" / "web"


@pytest.mark.skipif(not (WEB / "node_modules").exists(), reason="`npm install` was not run in dashboards/web")
def test_the_printed_chart_passes_the_check_of_the_page(tmp_path: Path) -> None:
    web = tmp_path / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules", ".build"))
    (web / "node_modules").symlink_to(WEB / "node_modules")
    (block,) = [each for each in blocks_of(DOCS / "howto" / "add-a-chart.md") if each.language == "ts"]
    (web / "src" / "charts" / "sentence.ts").write_text(block.code, encoding="utf-8")
    index = web / "src" / "charts" / "index.ts"
    text = index.read_text(encoding="utf-8").replace(
        'import { TableChart } from "./table";',
        'import { SentenceChart } from "./sentence";\nimport { TableChart } from "./table";',
    )
    text = text.replace("Histogram],\n]);", 'Histogram],\n  ["sentence", SentenceChart],\n]);')
    assert text.count("SentenceChart") == 2
    index.write_text(text, encoding="utf-8")
    checked = subprocess.run(["npm", "run", "check"], cwd=web, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr
