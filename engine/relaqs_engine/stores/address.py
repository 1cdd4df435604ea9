"""Addresses of what lies in an object store or on a web server."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from relaqs_engine.errors import LayoutError

READABLE = ("s3", "gs", "az", "https", "http")
WRITABLE = ("s3", "gs", "az")
_EXAMPLES = "s3://bucket/trips, gs://bucket/trips, az://account/container/trips or https://host/trips.parquet"
# One slash as well: `Path("s3://bucket")` is the path s3:/bucket.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?=[^/]|$)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """Where something lies.

    Attributes:
        scheme: one of READABLE.
        path: what follows "://": the bucket, account or host, and the key.
    """

    scheme: str
    path: str

    @classmethod
    def of(cls, text: object) -> Address | None:
        """Return the address that a text or a path is, None where it is none.

        Raises LayoutError for one of an unknown kind, and for one that has a secret in it.
        """
        if not isinstance(text, str | os.PathLike):
            return None
        match = _ADDRESS.fullmatch(os.fsdecode(text))
        if match is None:
            return None
        scheme, path = match[1].lower(), match[2].rstrip("/")
        if scheme not in READABLE:
            raise LayoutError(f"{scheme}:// is no kind of address that is known here; write {_EXAMPLES}")
        host = path.partition("/")[0]
        if "@" in host or ("?" in path and scheme in ("http", "https")):
            raise LayoutError(
                f"an address of {host.rpartition('@')[2]} has a password or a signature in it, which would "
                "be kept with the data; give the address alone, and credentials by the environment"
            )
        if not host or ".." in path.split("/"):
            raise LayoutError(f"{scheme}://{path} is no whole address; write {_EXAMPLES}")
        return cls(scheme, path)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    def __truediv__(self, key: str) -> Address:
        return Address(self.scheme, f"{self.path}/{key}")

    @property
    def name(self) -> str:
        """Return the last part of the key; "" for a bucket or a host alone."""
        return self.path.rpartition("/")[2] if "/" in self.path else ""

    @property
    def parent(self) -> Address:
        return Address(self.scheme, self.path.rpartition("/")[0] or self.path)

    @property
    def is_writable(self) -> bool:
        return self.scheme in WRITABLE

    @property
    def is_listable(self) -> bool:
        """Whether a folder there says what is in it."""
        return self.scheme in WRITABLE


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise LayoutError for an empty path, as of a variable that is not set. It would name this folder."""
    if not os.fspath(path):
        raise LayoutError("the path is empty; name a file, a folder or an address")
