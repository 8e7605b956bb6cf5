"""Long arrays in binary form arrive as psycopg's own lists do."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from rowsweep.queue.postgres.arrays import Longs, Uuids
from rowsweep.queue.postgres.cursor import run

if TYPE_CHECKING:
    import psycopg


@pytest.mark.parametrize("amount", [0, 1, 500])
def test_what_is_sent_as_an_array_is_read_as_one(connection: psycopg.Connection[Any], amount: int) -> None:
    """With the numbers at both ends of a bigint."""
    ids = [uuid.uuid4() for _ in range(amount)]
    numbers = [(-1) ** at * (2**63 - 1 - at) for at in range(amount)]
    values = {"id": Uuids(ids), "number": Longs(numbers)}
    text = "select u.id, u.number from unnest(%(id)s::uuid[], %(number)s::bigint[]) as u (id, number)"
    assert run(connection, text, values) == list(zip(ids, numbers, strict=True))
    assert run(connection, "select array_dims(%(id)s::uuid[])", values) == [(f"[1:{amount}]" if amount else None,)]
