"""JSON text as `jsonb` keeps it, so that a value read back is the one Postgres would answer."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json


def bind(value: Json) -> str:
    """Render a JSON form as `jsonb`'s own text.

    `jsonb` orders an object's keys by length and then bytes, and keeps numbers as `numeric`: a float that Python
    shows with a positive exponent comes back as an integer, and negative zero loses its sign.
    https://www.postgresql.org/docs/current/datatype-json.html
    """
    if isinstance(value, dict):
        parts = sorted(((str(key), part) for key, part in value.items()), key=lambda pair: _order(pair[0]))
        return "{" + ",".join(f"{_scalar(key)}:{bind(part)}" for key, part in parts) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(bind(part) for part in value) + "]"
    return _number(value) if isinstance(value, float) else _scalar(value)


def read(text: str | None) -> Json:
    """Answer the value of a kept text, fresh for each reader; None for SQL's null."""
    return None if text is None else json.loads(text)


def is_same(left: Json, right: Json) -> bool:
    """Compare two values as `jsonb = jsonb` does: numbers by value, and no boolean is a number."""
    return bool(_comparable(left) == _comparable(right))


def _order(key: str) -> tuple[int, bytes]:
    encoded = key.encode()
    return len(encoded), encoded


def _scalar(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> str:
    _scalar(value)  # refuses NaN and the infinities, as the statement's binding would
    return format(abs(Decimal(repr(value))) if value == 0 else Decimal(repr(value)), "f")


def _comparable(value: Json) -> Any:
    if isinstance(value, dict):
        return {key: _comparable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_comparable(part) for part in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number", Decimal(repr(value))
    return value
