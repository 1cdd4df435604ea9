"""Sealed JSON: an object with the checksum of its own text as the last entry.

    {"row_count": 3, "xxh3": "4f1e09c2b8d6a7e5"}

A bit that flips on a disk can turn a 3 into a 2, and the text is still good JSON. The seal shows it.
"""

from __future__ import annotations

import xxhash

SEAL = "xxh3"  # the name of the last entry
_MARK = f', "{SEAL}": "'.encode()
_END = b'"}'


def seal(text: str) -> bytes:
    """Return the text of a JSON object, which must not be empty, with its seal.

    >>> is_sealed(seal('{"row_count": 3}'))
    True
    >>> is_sealed(seal('{"row_count": 3}').replace(b"3", b"2", 1))
    Traceback (most recent call last):
    ValueError: it does not hold the bytes that were written
    """
    body = text.encode().removesuffix(b"}")
    return body + _MARK + xxhash.xxh3_64_hexdigest(body).encode() + _END


def is_sealed(text: bytes) -> bool:
    """Whether a text has a seal. Raises ValueError where the seal is that of another text."""
    body, mark, end = text.rstrip().rpartition(_MARK)
    if mark and end != xxhash.xxh3_64_hexdigest(body).encode() + _END:
        raise ValueError("it does not hold the bytes that were written")
    return bool(mark)
