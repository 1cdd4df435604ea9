"""Who may connect: a file of names, what proves their passwords, and how much each may ask at once.

[users.ana]
password = "SCRAM-SHA-256$4096:…"     made by `relaqs serve add-user`; the password itself is not kept
weight = 2.0                          of each query: twice the cores of one with 1.0
running = 4                           queries at once
queued = 32                           queries that may wait for their turn
connections = 64
answer = "1GB"                        the size of one answer
held = "2GB"                          answers, prepared statements and values that are kept, together
cores = 4                             planned for all queries of the user together
memory = "2GB"                        of databases of the user's own, taken from --memory-limit
budget = "$3"                         what a statement may ask the functions of --functions; else nothing
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from relaqs_engine.shared_files import replace_content

from relaqs.arguments import ArgumentError, budget_of, check_count, check_priority
from relaqs.memory import SMALLEST_BYTES, amount_bytes
from relaqs.queries.options import checked_cores
from relaqs.serve.quotas import Limits

ITERATIONS = 4096
SALT_BYTES = 16
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d+):([\w+/=]+)\$([\w+/=]+):([\w+/=]+)")
_NAME = re.compile(r"[\w.@-]{1,63}")

ScramKeys: TypeAlias = tuple[bytes, bytes, bytes, int]
"""Salt, stored key, server key, iterations."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may connect. keys: what proves their password."""

    name: str
    limits: Limits = field(default_factory=Limits)
    keys: ScramKeys | None = field(default=None, repr=False)


class Users:
    """The users of one file. Raises ArgumentError for a file that says something else."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = dict(users)
        self._secret = secrets.token_bytes(32)

    @classmethod
    def read(cls, path: Path) -> Users:
        """Return the users of a file."""
        if not path.is_file():
            raise ArgumentError(
                f"there is no file of users {path}; relaqs serve add-user NAME --users {path} makes it"
            )
        entries = _entries(path)
        if not entries:
            raise ArgumentError(f"{path} has no user; add one with relaqs serve add-user NAME --users {path}")
        return cls({name: _user(path, name, entry) for name, entry in entries.items()})

    def __iter__(self) -> Iterator[User]:
        return iter(self._users.values())

    def find(self, name: str) -> User | None:
        """Return the user of this name, None where there is none."""
        return self._users.get(name)

    def verifier(self, name: str) -> ScramKeys:
        """Return what proves a password. Of an unknown user it is always the same, and no password fits.

        So it takes as long and looks alike, and names of users cannot be found by trying.
        """
        user = self._users.get(name)
        if user is not None and user.keys is not None:
            return user.keys
        salt = hashlib.sha256(self._secret + name.encode()).digest()[:SALT_BYTES]
        return salt, secrets.token_bytes(32), secrets.token_bytes(32), ITERATIONS


def add_user(path: Path, name: str, password: str) -> bool:
    """Add a user to a file, or give one another password. Return whether the user is new.

    The other entries stay. The file is replaced as a whole, and only its owner may read it.

    Raises:
        ArgumentError: the name or password is not accepted, or the file has something else.
    """
    import tomli_w

    if not _NAME.fullmatch(name):
        raise ArgumentError(f"{name!r} is no name of a user; take up to 63 letters, digits and . @ - _")
    if not password:
        raise ArgumentError("the password is empty; give one with at least one character")
    entries = _entries(path) if path.exists() else {}
    is_new = name not in entries
    entries[name] = {**entries.get(name, {}), "password": _verifier(password)}
    mode = None if path.exists() else 0o600  # passwords are for its owner, unless somebody has said otherwise
    replace_content(path, tomli_w.dumps({"users": entries}).encode(), mode=mode)
    return is_new


def _verifier(password: str) -> str:
    from scramp import ScramMechanism

    salt, stored, server, count = ScramMechanism("SCRAM-SHA-256").make_auth_info(password, ITERATIONS)
    encoded = (base64.b64encode(each).decode() for each in (salt, stored, server))
    return "SCRAM-SHA-256${count}:{}${}:{}".format(*encoded, count=count)


def _entries(path: Path) -> dict[str, dict[str, Any]]:
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is no TOML: {error}") from None
    users = read.get("users", {})
    if set(read) - {"users"} or not isinstance(users, dict):
        raise ArgumentError(
            f"{path} has {sorted(set(read) - {'users'})}; it may have tables [users.NAME] alone"
        )
    return users


def _user(path: Path, name: str, entry: Any) -> User:
    try:
        return User(name, _limits(entry), _keys(entry.get("password", "")))
    except (ArgumentError, AttributeError, ValueError) as error:
        raise ArgumentError(f"{path}, user {name}: {error}") from None


def _limits(entry: Mapping[str, Any]) -> Limits:
    bounds = {"running", "queued", "connections", "answer", "held", "cores", "memory", "budget"}
    known = {"password", "weight", *bounds}
    if unknown := sorted(set(entry) - known):
        raise ArgumentError(f"there is no {unknown[0]!r}; there are {', '.join(sorted(known))}")
    usual = Limits()
    return Limits(
        weight=check_priority(entry.get("weight", usual.weight)),
        running=check_count("running", entry.get("running", usual.running)),
        queued=check_count("queued", entry.get("queued", usual.queued)),
        connections=check_count("connections", entry.get("connections", usual.connections)),
        answer_bytes=amount_bytes(str(entry.get("answer", usual.answer_bytes))),
        held_bytes=None if "held" not in entry else amount_bytes(str(entry["held"])),
        cores=None if "cores" not in entry else checked_cores(entry["cores"]),
        memory_bytes=None if "memory" not in entry else _memory_bytes(entry["memory"]),
        budget=budget_of(str(entry["budget"])) if "budget" in entry else 0,
    )


def _memory_bytes(amount: Any) -> int:
    found = amount_bytes(str(amount))
    if found < SMALLEST_BYTES:
        raise ArgumentError(f"memory is {amount!r}; it must be at least 256 MiB, such as '1GB'")
    return found


def _keys(verifier: str) -> ScramKeys:
    found = _VERIFIER.fullmatch(verifier)
    if found is None:
        raise ArgumentError("password is not what relaqs serve add-user writes; run it again")
    count, *encoded = found.groups()
    salt, stored, server = (base64.b64decode(each, validate=True) for each in encoded)
    return salt, stored, server, int(count)
