"""Certificates for the tests of TLS, made by the command `openssl`, or else by the package `cryptography`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

DAYS = "2"


@dataclass(frozen=True, slots=True)
class Certificate:
    """One signed by an authority. ca: the authority's own certificate."""

    ca: Path
    cert: Path
    key: Path

    def options(self) -> list[str]:
        """Return them as Dask's commands, and ours, take them."""
        return ["--tls-ca-file", str(self.ca), "--tls-cert", str(self.cert), "--tls-key", str(self.key)]

    def security(self) -> dict[str, object]:
        """Return them as a client takes them."""
        return {
            "tls_ca_file": str(self.ca),
            "tls_client_cert": str(self.cert),
            "tls_client_key": str(self.key),
            "require_encryption": True,
        }


def signed(folder: Path) -> Certificate:
    """Return a certificate by an authority of its own, both new. Skips the test where no openssl is."""
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl, which makes the certificates, is not installed")
    folder.mkdir()
    made = Certificate(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    ca_key, request = folder / "ca-key.pem", folder / "request.pem"
    new = ["req", "-newkey", "rsa:2048", "-nodes"]
    _openssl(
        *new, "-x509", "-days", DAYS, "-subj", f"/CN=ca of {folder.name}", "-keyout", ca_key, "-out", made.ca
    )
    _openssl(*new, "-subj", "/CN=127.0.0.1", "-keyout", made.key, "-out", request)
    authority = ["-CA", made.ca, "-CAkey", ca_key, "-CAcreateserial"]
    _openssl("x509", "-req", "-days", DAYS, "-in", request, *authority, "-out", made.cert)
    return made


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
