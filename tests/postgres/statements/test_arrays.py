"""Long arrays in binary form arrive as psycopg's own lists do."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from rowsweep.queue.postgres.statements.arrays import Longs, Texts, Uuids, texts_or_none
from rowsweep.queue.postgres.statements.cursor import run

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


@pytest.mark.parametrize("texts", [[], ["a"], [None], ["a", "a", None, None, "", "ü€", "NULL", '{"x,y"}', "a"]])
def test_texts_are_read_as_they_were_sent(connection: psycopg.Connection[Any], texts: list[str | None]) -> None:
    """With nulls, and with what a literal would have to quote; repeated ones are made once."""
    text = "select u.text from unnest(%(text)s::text[], %(text)s::text[]) with ordinality as u (text, twin, at)"
    text += " where u.text is not distinct from u.twin order by u.at"
    assert run(connection, text, {"text": Texts(texts)}) == [(value,) for value in texts]


def test_an_array_that_says_nothing_is_left_out(connection: psycopg.Connection[Any]) -> None:
    """`unnest` fills it up with nulls."""
    values = {"id": Longs([1, 2]), "text": texts_or_none([None, None])}
    assert values["text"] == []
    text = "select u.id, u.text from unnest(%(id)s::bigint[], %(text)s::text[]) as u (id, text)"
    assert run(connection, text, values) == [(1, None), (2, None)]
    assert texts_or_none([None, "a"]) == [None, "a"]


@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii", "utf8"])
def test_texts_are_sent_in_the_encoding_of_the_connection(connection: psycopg.Connection[Any], encoding: str) -> None:
    """An application's own connection may have another one than the package's."""
    connection.execute(f"set client_encoding = {encoding}")
    answer = run(connection, "select octet_length((%(text)s::text[])[1])", {"text": Texts(["ü"])})
    assert answer == [(2,)]
