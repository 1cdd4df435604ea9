"""Clusters that speak TLS: certificates made here, real processes, and what is said of wrong ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributed import Client, Security
from relaqs_engine.errors import ClusterError

import relaqs
from relaqs.arguments import ArgumentError
from relaqs.cli import program
from relaqs.executors import open_executor
from tests.relaqs.executors.certificates import Certificate, signed
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    free_port,
    lone_worker_command,
    scheduler_command,
    started,
)

COUNT = "SELECT count(*) AS n FROM nation"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return signed(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return signed(tmp_path_factory.mktemp("tls") / "theirs")


@pytest.fixture(scope="module")
def cluster(certificate: Certificate) -> Iterator[str]:
    """The address of a scheduler with a worker that speak to each other by TLS alone."""
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    scheduler = [*scheduler_command(port), "--protocol", "tls"]
    with ExitStack() as stack:
        for command in (scheduler, lone_worker_command(address)):
            stack.enter_context(started(*command, *certificate.options()))
        security = Security(**certificate.security())
        with Client(address, timeout=LONG_SECONDS, security=security, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=LONG_SECONDS)
        yield address


def test_a_query_over_tls(cluster: str, certificate: Certificate, tpch_warehouse: Path) -> None:
    for security in (certificate.security(), Security(**certificate.security())):
        with relaqs.connect(tpch_warehouse, cluster=cluster, security=security) as db:
            assert db.online_sql(COUNT).result().table["n"].to_pylist() == [25]


def test_the_commands_over_tls(cluster: str, certificate: Certificate, tpch_warehouse: Path) -> None:
    words = ["sql", COUNT, "--data", str(tpch_warehouse), "--cluster", cluster, "--format", "jsonl"]
    done = CliRunner().invoke(program, [*words, *certificate.options()])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["is_exact"] is True
    looked = CliRunner().invoke(program, ["cluster", "status", cluster, *certificate.options()])
    assert looked.exit_code == 0, looked.output
    assert "1 core" in looked.stdout


def test_certificates_that_do_not_fit(cluster: str, certificate: Certificate, stranger: Certificate) -> None:
    ours, theirs = certificate.security(), stranger.security()
    for wrong in (theirs, {**theirs, "tls_ca_file": ours["tls_ca_file"]}):
        with pytest.raises(ClusterError, match=r"do not accept each other's certificate .*authority"):
            open_executor(cluster, security=wrong)
    with pytest.raises(ClusterError, match=r"cannot be used \(.*KEY_VALUES_MISMATCH"):
        open_executor(cluster, security={**ours, "tls_client_key": theirs["tls_client_key"]})
    with pytest.raises(ClusterError, match=r"cannot be used \(.*No such file.*give a distributed.Security"):
        open_executor(cluster, security={**ours, "tls_client_cert": "/no/such.pem"})
    with pytest.raises(ClusterError, match=r"cannot be used \(Unknown parameters: \['colour'\]"):
        open_executor(cluster, security={"colour": "blue"})


def test_tls_on_one_side_alone(cluster: str, certificate: Certificate) -> None:
    with pytest.raises(ClusterError, match=f"^{cluster} asks for TLS, and there is no certificate"):
        open_executor(cluster)
    plain = cluster.replace("tls://", "tcp://")
    with pytest.raises(ClusterError, match=f"^encryption is required, and {plain} is without; write it"):
        open_executor(plain, security=certificate.security())
    with pytest.raises(ClusterError, match=rf"no Dask scheduler answered at {plain} .* \(tls://… where"):
        open_executor(plain)


def test_security_without_an_address(certificate: Certificate, tpch_warehouse: Path) -> None:
    with pytest.raises(ArgumentError, match="security is for a cluster that is given by its scheduler's"):
        relaqs.connect(tpch_warehouse, security=certificate.security())
    words = ["sql", COUNT, "--data", str(tpch_warehouse), *certificate.options()]
    done = CliRunner().invoke(program, words)
    assert "give --cluster tls://host:8786 too" in done.output
