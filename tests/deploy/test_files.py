"""The files of `deploy/` and the workflow, as far as one machine can try them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import kubernetes_validate
import pytest
import yaml
from distributed import Client

import relaqs
from relaqs.executors.dask import messages
from tests.relaqs.executors.clusters import LONG_SECONDS, address_of, free_port, started

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = ("dashboard", "serve")
MANIFEST: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8"))


def _dockerfile() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_has_a_pinned_base_and_a_user_without_rights() -> None:
    lines = _dockerfile()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base) for base in bases)
    last_stage = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert [line for line in last_stage if line.startswith("USER")] == ["USER 10001"]
    assert any("--constraint constraints.txt" in line for line in lines)


@pytest.mark.parametrize("part", ["scheduler", "worker"])
def test_pods_are_what_kubernetes_accepts(part: str) -> None:
    spec = MANIFEST["spec"][part]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": part}, "spec": spec}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    assert spec["securityContext"]["runAsNonRoot"]


def test_the_service_is_what_kubernetes_accepts() -> None:
    spec = MANIFEST["spec"]["scheduler"]["service"]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "relaqs"}, "spec": spec}
    kubernetes_validate.validate(service, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.slow
def test_the_manifests_commands_make_a_cluster_that_answers(tmp_path: Path) -> None:
    """The commands as they stand, but for what only the cluster has: addresses, names and so much memory."""
    scheduler, worker = (
        MANIFEST["spec"][part]["spec"]["containers"][0]["args"] for part in ("scheduler", "worker")
    )
    port = free_port()
    changes = {"0.0.0.0": "127.0.0.1", "8786": str(port), "$(DASK_WORKER_NAME)": "w", "4": "2", "4GB": "1GB"}
    relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), tmp_path / "numbers", partitions=4)
    with ExitStack() as stack:
        for command, more in (
            (scheduler, ["--no-dashboard"]),
            (worker, [address_of(port), "--no-dashboard"]),
        ):
            words = [changes.get(word, word) for word in command[1:]]
            stack.enter_context(started(*words, *more))
        with Client(address_of(port), timeout=LONG_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=LONG_SECONDS)
            client.run(messages.versions)  # all have imported what they need: who runs answers soon
        db = stack.enter_context(relaqs.connect(tmp_path, cluster=address_of(port)))
        assert db.online_sql("SELECT count(*) AS n FROM numbers").result().table["n"].to_pylist() == [1000]


@pytest.mark.slow
def test_the_script_for_a_queue_runs_a_query(tmp_path: Path) -> None:
    relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), tmp_path / "numbers", partitions=4)
    small = "import runpy, sys; script = runpy.run_path(sys.argv.pop(1)); "
    small += "script['main'].__globals__.update(CORES=1, MEMORY='1GB'); script['main']()"
    options = ["--system", "Local", "--jobs", "1"]
    command = [sys.executable, "-c", small, DEPLOY / "hpc.py", tmp_path, "SELECT count(*) AS n FROM numbers"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1000" in done.stdout.replace(",", "")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd's checker is not on this machine"
)
@pytest.mark.parametrize("command", UNITS)
def test_systemd_accepts_the_unit(tmp_path: Path, command: str) -> None:
    unit = tmp_path / f"relaqs-{command}.service"
    text = (DEPLOY / unit.name).read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/relaqs/bin/relaqs", sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", UNITS)
def test_the_units_command_has_options_that_there_are(command: str) -> None:
    text = (DEPLOY / f"relaqs-{command}.service").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    shown = subprocess.run(
        [sys.executable, "-m", "relaqs", command, "--help"], capture_output=True, text=True, timeout=60
    ).stdout
    assert [option for option in re.findall(r"--[a-z-]+", line) if option not in shown] == []


def test_the_workflow_pins_its_actions_and_tries_each_system_and_python() -> None:
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []
    matrix = WORKFLOW["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    commands = [step["run"] for step in steps if "run" in step]
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z -]+)", "\n".join(commands)):
        assert all(f"\n{each}:" in targets for each in target.split())
