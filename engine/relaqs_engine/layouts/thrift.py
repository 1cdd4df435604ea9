"""The bits of Thrift's compact protocol that a Parquet footer is written in.

A number is a varint: seven bits a byte, the lowest first. A signed one is zigzag: 0, −1, 1, −2 become 0, 1,
2, 3. A struct is a row of fields and a 0. Before each field stands a byte: by how much its number is larger
than that of the field before, and its type.
"""

from __future__ import annotations

from collections.abc import Iterable

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
_TRUE_FALSE, _BYTE, _I16, _DOUBLE, _SET = (1, 2), 3, 4, 7, 10
_SHORT = 15  # lists of fewer items have their length in the first byte

Field = tuple[int, int, bytes]
"""The number of a field, its type, and its bytes."""


def varint(number: int) -> bytes:
    """Return a number that is not negative, seven bits a byte.

    >>> varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def whole(number: int) -> bytes:
    """Return the bytes of a signed number.

    >>> whole(-1).hex(), whole(1).hex()
    ('01', '02')
    """
    return varint((number << 1) ^ (number >> 63))


def binary(data: bytes) -> bytes:
    """Return bytes with their length before them."""
    return varint(len(data)) + data


def listed(kind: int, items: list[bytes]) -> bytes:
    """Return a list of items of one type."""
    count = len(items)
    head = bytes([count << 4 | kind]) if count < _SHORT else bytes([0xF0 | kind]) + varint(count)
    return head + b"".join(items)


def struct(fields: Iterable[Field]) -> bytes:
    """Return a struct. The numbers of its fields must rise, by at most 15."""
    found, last = bytearray(), 0
    for number, kind, data in fields:
        found.append((number - last) << 4 | kind)
        found += data
        last = number
    found.append(0)
    return bytes(found)


class Reader:
    """Reads a struct's bytes from a position on.

    Attributes:
        data: all bytes.
        at: the position of the next one.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        """Return the next number that is not negative."""
        shift = number = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def whole(self) -> int:
        """Return the next signed number."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def binary(self) -> bytes:
        """Return the next bytes that have their length before them."""
        count = self.varint()
        self.at += count
        return self.data[self.at - count : self.at]

    def fields(self) -> Iterable[tuple[int, int]]:
        """Yield the number and type of each field of a struct. The caller reads or skips its value."""
        last = 0
        while head := self.data[self.at]:
            self.at += 1
            last = last + (head >> 4) if head >> 4 else self.whole()
            yield last, head & 0xF
        self.at += 1

    def length(self) -> tuple[int, int]:
        """Return how many items the next list has, and their type."""
        head = self.data[self.at]
        self.at += 1
        return (self.varint() if head >> 4 == _SHORT else head >> 4), head & 0xF

    def skip(self, kind: int) -> None:
        """Go past a field's value. Raises ValueError for a type that no footer has."""
        if kind in _TRUE_FALSE:
            return
        if kind in (_BYTE, _DOUBLE):
            self.at += 1 if kind == _BYTE else 8
        elif kind in (_I16, I32, I64):
            self.varint()
        elif kind == BINARY:
            self.binary()
        elif kind in (LIST, _SET):
            count, of = self.length()
            for _ in range(count):
                self.at += 1 if of in _TRUE_FALSE else 0
                self.skip(of)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise ValueError(f"{kind} is no type of a field in a Parquet footer")
