"""Long arrays in Postgres's binary form, made at a fifth of what psycopg's lists cost an element."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from psycopg import BaseConnection
    from psycopg.abc import AdaptContext, Buffer

# Dimensions, whether there are nulls, the elements' type, how many there are, the number of the first: `array_send`.
_HEAD: Final = struct.Struct("!iiIii")
_EMPTY: Final = struct.Struct("!iii")
_LENGTH: Final = struct.Struct("!i")
_UUID, _UUIDS, _INT8, _INT8S, _TEXT, _TEXTS = 2950, 2951, 20, 1016, 25, 1009
_SIXTEEN: Final = _LENGTH.pack(16)
_EIGHT: Final = _LENGTH.pack(8)
_NULL: Final = _LENGTH.pack(-1)


class Uuids(list[UUID]):
    """An array of type `uuid[]`, without nulls."""


class Longs(list[int]):
    """An array of type `bigint[]`, without nulls."""


class Texts(list[str | None]):
    """An array of type `text[]`."""


class _UuidsDumper(Dumper):
    format = Format.BINARY
    oid = _UUIDS

    def dump(self, obj: Uuids) -> Buffer:
        return _array(_UUID, _SIXTEEN, [value.int.to_bytes(16, "big") for value in obj])


class _LongsDumper(Dumper):
    format = Format.BINARY
    oid = _INT8S

    def dump(self, obj: Longs) -> Buffer:
        return _array(_INT8, _EIGHT, [value.to_bytes(8, "big", signed=True) for value in obj])


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = _TEXTS

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self._encoding = "utf-8" if self.connection is None else encoding_of(self.connection)

    def dump(self, obj: Texts) -> Buffer:
        """Write each text with its length; one that stands there as often as its column says the same is made once."""
        elements, last, element, has_nulls = [], None, _NULL, 0
        for value in obj:
            if value is not last:
                last = value
                element = _NULL if value is None else _element(value.encode(self._encoding))
            has_nulls |= value is None
            elements.append(element)
        return _head(_TEXT, len(obj), has_nulls) + b"".join(elements)


def encoding_of(connection: BaseConnection[Any]) -> str:
    """Answer how text is sent over a connection."""
    encoding = connection.info.encoding
    return "utf-8" if encoding == "ascii" else encoding  # of a database that does not care


def register_arrays(adapters: AdaptersMap) -> None:
    """Have these sent in their form."""
    adapters.register_dumper(Uuids, _UuidsDumper)
    adapters.register_dumper(Longs, _LongsDumper)
    adapters.register_dumper(Texts, _TextsDumper)


def texts_or_none(texts: list[str | None]) -> Texts:
    """Answer an array, an empty one where there is no text: `unnest` fills the shorter arrays up with nulls."""
    return Texts(texts if any(text is not None for text in texts) else ())


def _array(kind: int, length: bytes, elements: list[bytes]) -> bytes:
    """Join elements that are all of one length."""
    return _head(kind, len(elements), 0) + (length + length.join(elements) if elements else b"")


def _head(kind: int, amount: int, has_nulls: int) -> bytes:
    return _HEAD.pack(1, has_nulls, kind, amount, 1) if amount else _EMPTY.pack(0, 0, kind)


def _element(encoded: bytes) -> bytes:
    return _LENGTH.pack(len(encoded)) + encoded
