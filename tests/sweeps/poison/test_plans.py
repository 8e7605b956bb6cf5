"""How Postgres goes about rows that are named by their keys: by the key's index, never by the table."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from rowsweep.sweeps.keyset.catalog import find_table
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.poison.listed import listed
from rowsweep.sweeps.setup import statements_for
from tests.sweeps.field import Field


def nodes(plan: dict[str, Any]) -> list[str]:
    return [plan["Node Type"], *(node for child in plan.get("Plans", ()) for node in nodes(child))]


@pytest.mark.parametrize("generic", [True, False])
@pytest.mark.parametrize("analyzed", [True, False])
def test_listed_rows_are_found_by_their_key(field: Field, *, analyzed: bool, generic: bool) -> None:
    """N-084, N-086: a part of a page, or a page of a retry, costs what its rows cost."""
    field.sql("create table lines (region text, n int, total int, primary key (region, n))")
    field.sql("insert into lines select 'r' || i % 50, i, 0 from generate_series(1, 100000) i")
    if analyzed:
        field.sql("analyze lines")
    rows = Rows("lines", where="total = 0")
    statements = listed(statements_for(find_table(field.connection, rows), rows, bounded=False))
    field.sql(f"set plan_cache_mode = {'force_generic_plan' if generic else 'force_custom_plan'}")
    keys = {"rs_k0": [f"r{number % 50}" for number in range(1, 501)], "rs_k1": [str(n) for n in range(1, 501)]}
    for statement in (
        statements.update({"total": "n"}, started=True),
        statements.count(started=True, lock=True),
        statements.read([psycopg.sql.SQL("n")], started=True, lock=True),
    ):
        text = statement.as_string(field.connection)
        ((plan,),) = field.connection.execute(f"explain (format json) {text}", keys, prepare=True).fetchall()
        assert "Seq Scan" not in nodes(plan[0]["Plan"]), plan


@pytest.mark.parametrize("key", ["id", "region, id"])
def test_the_condition_is_asked_of_listed_rows_alone_however_they_are_joined(field: Field, key: str) -> None:
    """N-084: a server that would rather read a small table whole asks it first, also of rows that it fails for."""
    field.sql(f"create table lines (region text, id int, qty int, total int, primary key ({key}))")
    field.sql("insert into lines select 'r', i, i % 10, 0 from generate_series(1, 100) i")
    rows = Rows("lines", where="100 / qty < 1000")
    statements = listed(statements_for(find_table(field.connection, rows), rows, bounded=False))
    for scan in ("nestloop", "indexscan", "bitmapscan", "mergejoin"):
        field.sql(f"set enable_{scan} = off")
    names = key.split(", ")
    ids = [str(at) for at in range(11, 20)]
    keys = {f"rs_k{at}": ids if name == "id" else ["r"] * len(ids) for at, name in enumerate(names)}
    assert field.one(statements.count(started=True, lock=True).as_string(field.connection), keys) == 9
    text = statements.update({"total": "qty"}, started=True).as_string(field.connection)
    ((plan,),) = field.connection.execute(f"explain (format json) {text}", keys).fetchall()
    assert "Seq Scan" in nodes(plan[0]["Plan"])
    assert field.connection.execute(text, keys).rowcount == 9
    with pytest.raises(psycopg.errors.DivisionByZero):
        field.connection.execute(
            text, {**keys, "rs_k0": ["20"], **({"rs_k0": ["r"], "rs_k1": ["20"]} if len(names) > 1 else {})}
        )
