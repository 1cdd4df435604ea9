"""A real browser for tests: Debian's Chromium, installed once where that is possible."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 30_000


@functools.cache
def chromium() -> str:
    """Return the path of a Chromium, after installing Debian's if there is none. Skips the test otherwise.

    Where two runs of tests need it at once, one installs it and the other waits.
    """
    with open(Path(tempfile.gettempdir()) / "relaqs-tests-chromium.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next(filter(None, map(shutil.which, NAMES)), None) or installed_chromium()


def installed_chromium() -> str:
    if not shutil.which("apt-get") or os.geteuid() != 0:
        pytest.skip("there is no Chromium, and only root on Debian can install it: apt-get install chromium")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        ended = subprocess.run(
            ["apt-get", "--quiet", *command],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            pytest.skip(f"Chromium could not be installed: {ended.stderr.strip()[-300:]}")
    return shutil.which("chromium") or pytest.skip("apt-get installed no chromium")


@contextmanager
def opened() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        # Without the sandbox, since a container's root may not make one; the pages are the tests' own.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def panel_of(page: Page, title: str) -> Locator:
    return page.get_by_role("article", name=title, exact=True)


def expect_state(page: Page, title: str, state: str) -> None:
    expect(panel_of(page, title)).to_have_attribute("data-state", state)
