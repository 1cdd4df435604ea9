"""The settings of one connection: how good answers must be, and what drivers of Postgres set and ask.

    SET relaqs.target = '5%'        the first answer with this error is enough
    SET relaqs.within = '2s'        the best answer after this time is enough
    SET relaqs.intervals = on       more columns: NAME_low, NAME_high
    SET relaqs.confidence = '99%'   of the intervals
    SET relaqs.confidence_for = 'table'  of all certified intervals together, not of each cell's
    SET relaqs.exact_below = '0.3s'  what one core reads in less time is exact, at once; with a target, too,
                                    unless a sample reaches it in half of the time
    SET relaqs.budget = '$3'        what a statement may ask costly functions: money, or calls such as 500
    SET relaqs.dialect = 'duckdb'   statements mean what they do in DuckDB, not what they do in Postgres

A comment sets them for one statement, from tools that cannot say SET:

    SELECT /*+ relaqs target=5% within=2s */ avg(fare) FROM trips

Without a target, a time or a budget every answer is exact. A setting that is changed in a transaction is as
before when the transaction is rolled back.
"""

from __future__ import annotations

import copy
import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from relaqs.arguments import ArgumentError, budget_of, check_zone, relative_error, share_of_weight
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import ConfidenceFor
from relaqs.serve.failures import BAD_VALUE, FULL, UNKNOWN_SETTING, RefusedError

SERVER_VERSION = "15.0"

_HINT = re.compile(r"\+\s*relaqs\b(.*)", re.IGNORECASE | re.DOTALL)
_HINTED = re.compile(r"[\s,]*(\w+)\s*=\s*('[^']*'|[^\s,]+)[\s,]*")
_MOST_HINT_CHARACTERS = 500  # it is read on the server's loop
_OF_OTHERS = re.compile(r"[a-z_]\w*\.\w+", re.IGNORECASE)
_MOST_NOTES, _MOST_NOTE_CHARACTERS = 100, 1000
_OFF = {"", "off", "none", "default", "0"}
_HOURS_AHEAD = re.compile(
    r"([+-]?\d{1,2})(?:\.0*)?|interval\s*'([+-]?\d{1,2})(?::?00)?(?:\s*hours?)?'.*", re.IGNORECASE
)
_HOURS_BEHIND = re.compile(r"(?:UTC|GMT|<\w*[+-]?\d*>|(?=.*:))([+-]?\d{1,2})(?::?00)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting that may be changed. check: returns the value as it is shown, or raises an error."""

    default: str
    check: Callable[[str], str]


def _either(*values: str, shown: str = "") -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in map(str.lower, values):
            said = f"{'this server has' if shown else 'it must be'} {' or '.join(values)}"
            raise ValueError(f"{said} only" if shown else said)
        return shown or text.lower()

    return check


def _switch(text: str) -> str:
    word = text.lower()
    if word in {"on", "true", "yes", "1"}:
        return "on"
    if word in {"off", "false", "no", "0"}:
        return "off"
    raise ValueError("it must be on or off")


_isolation = _either("read uncommitted", "read committed", "repeatable read", "serializable")


def _zone(text: str) -> str:
    """Return a time zone as DuckDB spells it. As in Postgres, UTC+3 is three hours behind, and 3 ahead."""
    if (hours := _HOURS_AHEAD.fullmatch(text)) is not None:
        return _hours_behind(-int(hours[1] or hours[2]))
    if (behind := _HOURS_BEHIND.fullmatch(text)) is not None:
        return _hours_behind(int(behind[1]))
    try:
        return check_zone("TimeZone", text)
    except ArgumentError as error:
        raise ValueError(str(error).partition("; ")[2]) from None


def _hours_behind(hours: int) -> str:
    if not -14 <= hours <= 12:
        raise ValueError("it must be at most 14 hours ahead of UTC, or 12 behind")
    return f"Etc/GMT{hours:+d}" if hours else "UTC"


def _target(text: str) -> str:
    if text.lower() in _OFF:
        return "off"
    relative_error(text)
    return text


def _confidence(text: str) -> str:
    share = share_of_weight(text)
    if not 0.5 < share < 1:
        raise ValueError("it must be between 50% and 100%, such as 95%")
    return text


def _budget(text: str) -> str:
    if text.lower() in _OFF - {"0"}:  # 0 is nothing elsewhere, and off is no limit
        return "off"
    budget_of(text)
    return text


def _duration(text: str) -> str:
    """Return a time as it was given, "off" for none."""
    if text.lower() not in _OFF and not 0 < seconds_of(text) < math.inf:
        raise ValueError("it must be a time above 0, such as 2s or 500ms")
    return "off" if text.lower() in _OFF else text


def _milliseconds(text: str) -> str:
    """Return a time of Postgres, which is in milliseconds without a unit. 0 is no limit."""
    value = float(text) if _is_number(text) else seconds_of(text) * 1000
    if not 0 <= value < math.inf:
        raise ValueError("it must be a time such as 5000 or 5s; 0 is no limit")
    return str(int(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def seconds_of(text: str) -> float:
    """Return a time in seconds, of 2s, 500ms, 1min or 2. Raises ValueError for what is none."""
    word = text.strip().lower()
    for unit, size in (("ms", 0.001), ("min", 60.0), ("s", 1.0)):
        if word.endswith(unit):
            return float(word.removesuffix(unit)) * size
    return float(word)


_OWN = {
    "relaqs.target": _Setting("off", _target),
    "relaqs.within": _Setting("off", _duration),
    "relaqs.intervals": _Setting("off", _switch),
    "relaqs.confidence": _Setting("95%", _confidence),
    "relaqs.confidence_for": _Setting("cell", _either(*get_args(ConfidenceFor))),
    "relaqs.exact_below": _Setting("300ms", _duration),
    "relaqs.budget": _Setting("off", _budget),
    "relaqs.dialect": _Setting("postgres", _either("postgres", "duckdb")),
}

_FIXED = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "integer_datetimes": "on",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "max_index_keys": "32",
    "max_identifier_length": "63",
    "lc_collate": "C",
    "lc_ctype": "C",
    "transaction_read_only": "on",
    "wal_level": "minimal",
}

_OF_POSTGRES = {
    "client_encoding": _Setting("UTF8", _either("UTF8", "UTF-8", "UNICODE", shown="UTF8")),
    "datestyle": _Setting(
        "ISO, MDY", _either("ISO, MDY", "ISO", "ISO,MDY", "ISO, DMY", "ISO, YMD", shown="ISO, MDY")
    ),
    "intervalstyle": _Setting("postgres", _either("postgres", shown="postgres")),
    "standard_conforming_strings": _Setting("on", _either("on", "true", "1", shown="on")),
    "bytea_output": _Setting("hex", _either("hex", shown="hex")),
    **{
        f"{which}transaction_{name}": setting
        for which in ("", "default_")
        for name, setting in (
            ("isolation", _Setting("read committed", _isolation)),
            ("deferrable", _Setting("off", _switch)),
        )
    },
    "default_transaction_read_only": _Setting("on", _switch),
    "statement_timeout": _Setting("0", _milliseconds),
    "timezone": _Setting("UTC", _zone),
    **{
        name: _Setting(default, str)
        for name, default in (
            *(("application_name", ""), ("search_path", '"$user", public'), ("extra_float_digits", "1")),
            *(("client_min_messages", "notice"), ("default_tablespace", ""), ("session_authorization", "")),
            *((f"{which}_timeout", "0") for which in ("idle_in_transaction_session", "lock")),
            *((name, "on") for name in ("row_security", "synchronize_seqscans", "check_function_bodies")),
            *((name, "on") for name in ("geqo", "enable_seqscan")),
            *(("jit", "off"), ("default_table_access_method", "heap"), ("role", "none")),
            *(("xmloption", "content"), ("work_mem", "4MB"), ("escape_string_warning", "on")),
        )
    },
}

_TRANSACTIONS = itertools.count(1)
_OF_TRANSACTION = ("transaction_isolation", "transaction_deferrable")
_CHANGEABLE = {**_OWN, **_OF_POSTGRES}

# What clients are told at the beginning, and again when it changes.
_REPORTED = (
    *(
        "server_version",
        "server_encoding",
        "client_encoding",
        "application_name",
        "DateStyle",
        "IntervalStyle",
    ),
    *("TimeZone", "integer_datetimes", "standard_conforming_strings", "is_superuser", "in_hot_standby"),
    *("default_transaction_read_only", "session_authorization"),
)
REPORTED = {name.lower(): name for name in _REPORTED}


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """Settings as they were at one moment. of_session: without what is local to the transaction."""

    now: Mapping[str, str]
    of_session: Mapping[str, str]


class Settings:
    """The settings of one connection.

    Args:
        at_start: what the client gave when it connected.
        timezone: where it gave none.
    """

    def __init__(self, at_start: Mapping[str, str], timezone: str = "UTC") -> None:
        self._at_start = {name: setting.default for name, setting in _CHANGEABLE.items()}
        self._at_start["timezone"] = timezone
        for name, value in at_start.items():
            if name.lower() in _CHANGEABLE:
                self._at_start[name.lower()] = _checked(name, value)
        self._now = dict(self._at_start)
        self._of_session = dict(self._at_start)  # without SET LOCAL
        self._before: dict[str, str] | None = None  # at BEGIN
        self._transaction = next(_TRANSACTIONS)

    def set(self, name: str, value: str | None, *, is_local: bool = False) -> None:
        """Change a setting; None for its value at the start.

        Raises:
            RefusedError: there is no such setting, or the value is not accepted.
        """
        if _OF_OTHERS.fullmatch(name) and not name.lower().startswith("relaqs."):
            key = name.lower()
            self._set_of_others(key, value)
        else:
            key = self._key(name)
            if key in _FIXED:
                raise RefusedError("55P02", f"{name} cannot be changed; it is {_FIXED[key]}")
            self._now[key] = self._at_start[key] if value is None else _checked(name, value)
        if not is_local:
            self._of_session[key] = self._now[key]

    def _set_of_others(self, key: str, value: str | None) -> None:
        """Keep a setting that means nothing here: a name with a dot, as tools keep notes of their own in."""
        if value is not None and len(value) > _MOST_NOTE_CHARACTERS:
            raise RefusedError(FULL, f"{key} may have up to {_MOST_NOTE_CHARACTERS:,} characters")
        if key not in self._now and len(self._now) >= len(_CHANGEABLE) + _MOST_NOTES:
            raise RefusedError(FULL, f"{_MOST_NOTES} settings of other names are set, the most allowed")
        self._now[key] = "" if value is None else value

    def hinted(self, comments: Sequence[str]) -> Settings:
        """Return the settings of a statement with these comments, of which some may be hints.

        Raises:
            RefusedError: a hint does not read, names no setting of ours, or has a value that is not accepted.
        """
        found = [hint[1] for hint in map(_HINT.fullmatch, comments) if hint is not None]
        if not found:
            return self
        hinted = copy.copy(self)
        hinted._now = dict(self._now)
        for text in found:
            if len(text) > _MOST_HINT_CHARACTERS or _HINTED.sub("", text):
                raise RefusedError(
                    BAD_VALUE,
                    f"the hint {text.strip()[:80]!r} does not read; write /*+ relaqs target=5% within=2s */",
                )
            for name, value in _HINTED.findall(text):
                key = self._key(f"relaqs.{name}")
                hinted._now[key] = _checked(key, value)
        return hinted

    def reset_all(self) -> None:
        """Give every setting its value at the start."""
        self._now, self._of_session = dict(self._at_start), dict(self._at_start)

    def show(self, name: str) -> str:
        """Return a setting's value. Raises RefusedError where there is no such setting."""
        key = self._key(name)
        if key in _OF_TRANSACTION and self._before is None:
            key = f"default_{key}"
        return _FIXED[key] if key in _FIXED else self._now[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted({**_FIXED, **self._now}.items()))

    def kept(self) -> KeptSettings:
        """Return the settings as they are, for a savepoint."""
        return KeptSettings(dict(self._now), dict(self._of_session))

    def take_back(self, kept: KeptSettings) -> None:
        """Give every setting the value that it had at a savepoint."""
        self._now, self._of_session = dict(kept.now), dict(kept.of_session)

    def begin(self) -> None:
        """Remember the settings, for a rollback."""
        self._before = dict(self._of_session)
        self._transaction = next(_TRANSACTIONS)
        self._now |= {name: self._now[f"default_{name}"] for name in _OF_TRANSACTION}

    def end(self, *, is_rolled_back: bool) -> None:
        """End a transaction. Settings that were local to it, or are rolled back, are as before."""
        if is_rolled_back and self._before is not None:
            self._of_session = self._before
        self._now, self._before = dict(self._of_session), None

    @property
    def transaction_number(self) -> int:
        """The number of the transaction. A statement outside of one is one itself."""
        return next(_TRANSACTIONS) if self._before is None else self._transaction

    @property
    def is_exact(self) -> bool:
        """Whether nothing but exact answers is allowed."""
        return {self._now[f"relaqs.{name}"] for name in ("target", "within", "budget")} == {"off"}

    @property
    def wants_intervals(self) -> bool:
        """Whether answers have columns for their intervals."""
        return self._now["relaqs.intervals"] == "on"

    @property
    def is_postgres(self) -> bool:
        """Whether statements mean what they do in Postgres, not what they do in DuckDB."""
        return self._now["relaqs.dialect"] == "postgres"

    @property
    def exact_below_seconds(self) -> float:
        """What one core reads in less time is exact, at once, unless a sample soon reaches the target."""
        text = self._now["relaqs.exact_below"]
        return 0.0 if text == "off" else seconds_of(text)

    @property
    def target(self) -> float | None:
        """The error that is enough, None where none is set."""
        text = self._now["relaqs.target"]
        return None if text == "off" else relative_error(text)

    @property
    def timezone(self) -> str:
        """The time zone by which answers read and show moments."""
        return self._now["timezone"]

    @property
    def statement_seconds(self) -> float | None:
        """How long one statement may take; None for any time."""
        return float(self._now["statement_timeout"]) / 1000 or None

    def options(self, priority: float) -> QueryOptions:
        """Return what a query is asked for. priority: of its user."""
        within, budget = self._now["relaqs.within"], self._now["relaqs.budget"]
        return QueryOptions(
            target=self.target,
            timeout=None if within == "off" else seconds_of(within),
            confidence=share_of_weight(self._now["relaqs.confidence"]),
            confidence_for=cast("ConfidenceFor", self._now["relaqs.confidence_for"]),
            priority=priority,
            budget=None if budget == "off" else budget_of(budget),
        )

    def _key(self, name: str) -> str:
        key = name.lower()
        if key in _FIXED or key in self._now:
            return key
        known = _OWN if key.startswith("relaqs.") else {**_FIXED, **_CHANGEABLE}
        near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(_OWN)}"
        raise RefusedError(UNKNOWN_SETTING, f"there is no setting {name}; {hint}")


def _checked(name: str, value: str) -> str:
    try:
        return _CHANGEABLE[name.lower()].check(value.strip().strip("'"))
    except (ValueError, ArgumentError) as error:
        words: Any = str(error)
        if isinstance(error, ArgumentError) or "could not convert" in words:
            words = {
                "relaqs.target": "it must be a relative error up to 100%, such as 5% or 0.05, or off",
                "relaqs.confidence": "it must be between 50% and 100%, such as 95%",
                "relaqs.budget": "it must be a number of calls such as 500, money such as $3, or off",
            }.get(name.lower(), "it must be a time, such as 2s or 500ms, or off")
        raise RefusedError(BAD_VALUE, f"{name} is {value!r}; {words}") from None
