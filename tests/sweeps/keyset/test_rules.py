"""Rules on a swept table."""

from __future__ import annotations

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration
from tests.sweeps.field import Field


def table(field: Field) -> None:
    field.sql("create table things (k int primary key, n int)")
    field.sql("create table seen (k int)")
    field.sql("insert into things select i from generate_series(1, 30) i")


@pytest.mark.parametrize(
    "rule", ["do instead nothing", "where old.k % 3 = 0 do instead insert into seen values (old.k)"]
)
def test_a_table_with_a_rule_instead_of_update_is_refused(field: Field, rule: str) -> None:
    """N-065: it would be called done, and its rows be as they were."""
    table(field)
    field.sql(f"create rule keep as on update to things {rule}")
    sweep = rs.backfill("count-up", rows=rs.Rows("things", where="n is null"), set={"n": "k"})
    with pytest.raises(InvalidDeclaration, match=r"things has a rule instead of UPDATE \(keep\)") as refused:
        sweep.launch()
    assert refused.value.meta["rules"] == ["keep"]
    field.sql("alter table things disable rule keep")
    assert field.sweep(sweep)["rows"] == 30


def test_a_rule_that_does_more_besides_is_no_matter(field: Field) -> None:
    """N-065: the rows are written all the same."""
    table(field)
    field.sql("create rule tell as on update to things do also insert into seen values (old.k)")
    field.sweep(rs.backfill("count-up", rows=rs.Rows("things", where="n is null"), set={"n": "k"}))
    assert field.sql("select count(*) from things where n = k") == [(30,)]
