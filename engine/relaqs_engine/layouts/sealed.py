"""Sealed JSON: an object whose last entry is the checksum of the text before it.

    {"row_count": 3, "xxh3": "4f1e09c2b8d6a7e5"}

A bit that flips on a disk turns a 3 into a 2, and the text is as good JSON as before. The seal tells.
"""

from __future__ import annotations

import xxhash

SEAL = "xxh3"  # the name of the last entry
_MARK = f', "{SEAL}": "'.encode()
_END = b'"}'


def seal(text: str) -> bytes:
    """Return the text of a JSON object that is not empty, sealed."""
    body = text.encode().removesuffix(b"}")
    return body + _MARK + xxhash.xxh3_64_hexdigest(body).encode() + _END


def is_sealed(text: bytes) -> bool:
    """Whether a seal is on the text. Raises ValueError where it is on another text than this."""
    body, mark, end = text.rstrip().rpartition(_MARK)
    if mark and end != xxhash.xxh3_64_hexdigest(body).encode() + _END:
        raise ValueError("it does not hold the bytes that were written")
    return bool(mark)
