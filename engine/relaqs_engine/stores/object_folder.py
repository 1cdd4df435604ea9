"""A folder of an object store: the one module that calls the library for object stores.

Requests that fail are repeated for a while (PATIENCE_VARIABLE). Then StoreError says which address, and why.
The library's own words are not shown, because they may hold parts of a signed request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from relaqs_engine.errors import LayoutError, StoreError
from relaqs_engine.stores.address import Address

PATIENCE_VARIABLE = "RELAQS_STORE_PATIENCE"
"""The environment variable that says for how many seconds a failing request is repeated."""

_PATIENCE_SECONDS = 60.0
_MOST_RETRIES = 10
_PUT_AT_ONCE_BYTES = 64 << 20
"""A larger file is written in pieces of this size."""
_SHORTER = "is shorter than it was; open a new session to read it as it is now"
_BROKE_OFF = "cannot be reached: the connection broke off, again and again; try later"
_MOST_BROKEN_ANSWERS = 9
_REPEATED = re.compile(r"\bafter [1-9]\d* retries\b")  # the library says that it has done so
_STATUS = re.compile(r"\b([45]\d\d) ([A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*)\b")


Answer = TypeVar("Answer")


class MissingObjectError(StoreError):
    """There is no object at an address."""


class NoRangesError(StoreError):
    """A server does not send parts of an object."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the store described it.

    Attributes:
        key: below the folder.
        etag: the store's own mark of this content; "" where it has none.
        version: a further mark that some stores have; "" where it has none.
        modified: when it was written, by the store's clock.
    """

    key: str
    byte_count: int
    etag: str
    version: str
    modified: datetime

    @property
    def state(self) -> tuple[int, str]:
        """Return what changes with the content: the size and the mark, or the time where there is no mark."""
        return self.byte_count, self.etag or self.modified.isoformat()


class StoreFolder:
    """A folder of a store. Nothing outside of it can be named. Safe to use from several threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._store = self._request("", lambda: _opened(address))

    def described(self, key: str) -> StoredObject | None:
        """Return what the store knows of an object, None where there is none."""
        import obstore

        try:
            return _described(key, self._request(key, lambda: obstore.head(self._store, key)))
        except MissingObjectError:
            return None

    def content(self, key: str) -> tuple[bytes, StoredObject] | None:
        """Return an object's bytes with what the store knows of them, None where there is none."""
        import obstore

        def read() -> tuple[bytes, StoredObject]:
            found = obstore.get(self._store, key)
            return bytes(found.bytes()), _described(key, found.meta)

        try:
            return self._request(key, read)
        except MissingObjectError:
            return None

    def ranges(self, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[memoryview]:
        """Return parts of an object, read side by side. Raises MissingObjectError where there is none."""
        import obstore

        def read() -> list[memoryview]:
            found = obstore.get_ranges(self._store, key, starts=starts, lengths=lengths)
            return [memoryview(piece) for piece in found]

        try:
            pieces = self._request(key, read)
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # the library's end of an answer that is too short
                raise StoreError(f"{self.address / key} {_SHORTER}") from None
            raise
        if [len(piece) for piece in pieces] != list(lengths):
            raise StoreError(f"{self.address / key} {_SHORTER}")
        return pieces

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield an object's bytes from begin to end. Raises MissingObjectError where there is none."""
        import obstore

        stream = iter(self._request(key, lambda: obstore.get(self._store, key)).stream())
        while piece := self._request(key, lambda: next(stream, b""), repeats=0):
            yield bytes(piece)

    def put(self, key: str, content: bytes | Path) -> None:
        """Write an object, whole or not at all."""
        import obstore

        self._request(key, lambda: obstore.put(self._store, key, content, chunk_size=_PUT_AT_ONCE_BYTES))

    def replace(self, key: str, content: bytes, replaced: StoredObject | None) -> bool:
        """Write an object if the store still has the one that is to be replaced, None for none.

        Returns False where another was there.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create" if replaced is None else _version(replaced)
        try:
            self._request(
                key,
                lambda: obstore.put(self._store, key, content, mode=mode),
                keep=(AlreadyExistsError, PreconditionError),
            )
        except (AlreadyExistsError, PreconditionError, StoreError) as error:
            # The answer to a request that was repeated tells of the second one. The first may have worked.
            found = self.content(key)
            if found is not None and found[0] == content:
                return True
            if isinstance(error, StoreError):
                raise
            return False
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. Nothing happens where there is none."""
        import obstore

        for key in keys:
            with suppress(MissingObjectError):
                self._request(key, partial(obstore.delete, self._store, key))

    def below(self, prefix: str = "") -> list[StoredObject]:
        """Return all objects whose keys begin with the folders of `prefix`, by key."""
        import obstore

        def read() -> list[StoredObject]:
            listed = obstore.list(self._store, prefix or None, chunk_size=1000)
            return [_described(str(meta["path"]), meta) for chunk in listed for meta in chunk]

        return sorted(self._request(prefix, read), key=lambda each: each.key)

    def entries(self) -> tuple[list[str], list[str]]:
        """Return the names of the folders in this one, and those of the objects."""
        import obstore

        listed = self._request("", lambda: obstore.list_with_delimiter(self._store))
        folders = [str(prefix).strip("/").rpartition("/")[2] for prefix in listed["common_prefixes"]]
        objects = [str(meta["path"]).rpartition("/")[2] for meta in listed["objects"]]
        return sorted(folders), sorted(objects)

    def _request(
        self,
        key: str,
        request: Callable[[], Answer],
        keep: tuple[type[Exception], ...] = (),
        repeats: int = _MOST_BROKEN_ANSWERS,
    ) -> Answer:
        """Return the answer to a request. Errors come out as ours, but those of the types in `keep`.

        The library repeats what fails before there is an answer, for as long as it may take. Only answers
        that break off are read again here.
        """
        from obstore.exceptions import BaseError, NotSupportedError

        address = self.address / key if key else self.address
        for is_last in (*[False] * repeats, True):
            try:
                return request()
            except keep:
                raise
            except FileNotFoundError:
                raise MissingObjectError(f"{address} is not there; check the address") from None
            except NotSupportedError:
                raise NoRangesError(f"{address} is on a server that does not send parts of it") from None
            except (BaseError, OSError, ValueError) as error:
                reason = _reason(error)
                if is_last or reason != _BROKE_OFF or _REPEATED.search(str(error)):
                    raise StoreError(f"{address} {reason}") from None
        raise AssertionError("the last answer is returned or raised")


@lru_cache(maxsize=64)
def store_folder(address: Address) -> StoreFolder:
    """Return the folder at an address. A process keeps the newest ones open."""
    if find_spec("obstore") is None:
        raise LayoutError(
            f"{address} is in an object store, and the package obstore is not installed; "
            'install it with pip install "relaqs[stores]"'
        )
    return StoreFolder(address)


def _opened(address: Address) -> Any:
    from obstore.store import from_url

    patience = _patience_seconds()
    options: dict[str, Any] = {
        "client_options": {
            "connect_timeout": timedelta(seconds=min(5.0, patience)),
            "read_timeout": timedelta(seconds=min(15.0, patience)),
            "timeout": timedelta(seconds=max(120.0, patience)),
            "allow_http": address.scheme == "http" or endpoint().startswith("http://"),
        },
        "retry_config": {
            "max_retries": _MOST_RETRIES,
            "retry_timeout": timedelta(seconds=patience),
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
    }
    if address.scheme == "s3" and (provider := _profile_credentials()) is not None:
        options["credential_provider"] = provider
    return from_url(str(address), **options)


def _patience_seconds() -> float:
    text = os.environ.get(PATIENCE_VARIABLE, "")
    try:
        seconds = float(text or _PATIENCE_SECONDS)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise LayoutError(f"{PATIENCE_VARIABLE} is {text!r}; it must be a number of seconds, e.g. 60")
    return seconds


def endpoint() -> str:
    """Return where S3 is, if the environment says so: a server of one's own, mostly."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _profile_credentials() -> Any:
    """Return credentials of a profile, where the environment names one, or None.

    obstore itself finds keys in the environment and those of the machine's role. Profiles are read by boto3.
    """
    if not os.environ.get("AWS_PROFILE") or find_spec("boto3") is None:
        return None
    from boto3 import Session
    from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider(Session())


def _described(key: str, meta: Any) -> StoredObject:
    etag, version = meta["e_tag"] or "", meta["version"] or ""
    return StoredObject(key, int(meta["size"]), etag, version, meta["last_modified"])


def _version(stored: StoredObject) -> dict[str, str]:
    marks = {"e_tag": stored.etag, "version": stored.version}
    return {name: mark for name, mark in marks.items() if mark}


def _reason(error: Exception) -> str:
    """Return why a request failed, without the library's own words."""
    from obstore import exceptions

    hint = "check the credentials in the environment (AWS_…, GOOGLE_…, AZURE_…)"
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return f"may not be read or written with these credentials; {hint}"
    text = str(error)
    status = _STATUS.search(text)
    if status and status[1] == "416":
        return _SHORTER
    if status and status[1] in ("401", "403"):
        return f"may not be read or written with these credentials; {hint}"
    if status and status[1] == "404":
        return "is not there, and neither is its bucket; check the address"
    if status:
        return f"cannot be reached: the server answered {status[1]} {status[2]}, again and again; try later"
    if "timed out" in text.lower() or "TimedOut" in text:
        return f"cannot be reached: the server was silent too long; try later, or raise {PATIENCE_VARIABLE}"
    if "credential" in text.lower() or "169.254.169.254" in text:
        return f"cannot be reached: there are no credentials; {hint}"
    if "connect" in text.lower():
        return "cannot be reached: there is no connection to the server; check the address and the network"
    return _BROKE_OFF
