"""Declaring an export: what is refused, what the checksum covers, and where its rows come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, InvalidOption, RequirementMissing
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.registry import get_sweep
from tests.sweeps.field import Field

ORDERS = rs.Rows("orders")


def declared(**given: Any) -> rs.Export[Any]:
    """Declare an export anew."""
    reset_jobs()
    options: dict[str, Any] = {"rows": ORDERS, "to": "out"}
    return rs.export_rows("orders", **(options | given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": "orders"}, "rows must be a Rows"),
        ({"format": "parket"}, "format must be one of parquet"),
        ({"overwrite": "yes"}, "overwrite must be True or False"),
        ({"as_text": "price"}, "as_text must be a list of columns"),
        ({"source": 5}, "source must be a DSN"),
        ({"shards": "two"}, '\'shards\' must be a whole number from 1 to 64, or "auto".*Fix: shards="auto"'),
    ],
)
def test_what_an_export_cannot_have_is_refused_by_name(given: Any, said: str) -> None:
    """D-7: each refusal says what was expected, what came and what works."""
    with pytest.raises((InvalidDeclaration, InvalidOption, TypeError), match=said):
        declared(**given)


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, 1_000_001])
def test_the_size_of_a_part_is_a_count(rows: Any) -> None:
    """D-7: part_rows from 1 to a million."""
    with pytest.raises(InvalidOption, match="part_rows"):
        declared(part_rows=rows)


def test_the_checksum_covers_what_is_exported_and_where_to() -> None:
    """D-2: not how fast, nor in which parts."""
    first = declared()
    assert get_sweep("orders") is first
    sums = {first.checksum}
    assert declared(part_rows=7, rate="5/s", overwrite=True).checksum in sums
    changes: list[dict[str, Any]] = [
        {"format": "csv"}, {"format": rs.Parquet(compression="snappy")}, {"to": "elsewhere"}, {"as_text": ["price"]},
        {"rows": rs.Rows("orders", columns=["price"])}, {"rows": rs.Rows("orders", where="id > 1")},
        {"to": lambda: "out"},
    ]  # fmt: skip
    for change in changes:
        sums.add(declared(**change).checksum)
    assert len(sums) == 1 + len(changes)


def test_an_export_may_read_another_database_and_asks_the_gate(field: Field, tmp_path: Path) -> None:
    """S-202, D-7: `source` is where the rows are, the ledger stays the queue's; requirements hold."""
    field.orders(10)
    rows = rs.Rows("orders", columns=["price"])
    export = declared(rows=rows, to=tmp_path, part_rows=4, source=field.dsn)
    totals = field.sweep(export)
    assert (totals["rows"], totals["parts"]) == (10, 3)
    assert rs.read_export(tmp_path, verify=True).collect().columns == ["id", "price"]
    with pytest.raises(RequirementMissing):
        declared(to=tmp_path, requires=["never-done"]).launch()


def test_a_rate_paces_the_parts(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-210, S-205, D-6: by the same pacer, built once from the declaration, that hears of each part's rows."""
    field.orders(10)
    heard: list[tuple[rs.Pacer, int]] = []
    done = rs.Pacer.done

    def hear(pacer: rs.Pacer, rows: int) -> None:
        heard.append((pacer, rows))
        done(pacer, rows)

    monkeypatch.setattr(rs.Pacer, "done", hear)
    run = declared(to=tmp_path, part_rows=4, rate="100/s").launch()
    assert field.finish(run)["parts"] == 3
    assert [rows for _, rows in heard if rows] == [4, 4, 2]
    (pacer,) = {pacer for pacer, _ in heard}
    assert pacer.limit is not None
    assert pacer.limit.per_second == 100
    assert field.row(run).active_seconds >= 0.08


def test_the_tenant_holds_while_rows_are_read_and_is_never_crossed(field: Field, tmp_path: Path) -> None:
    """S-208, N-009, N-010: what a row-level-security policy asks is answered for the input's tenant only."""
    field.orders(4)
    crossing = "current_setting('rowsweep.cross_tenant') = 'on'"
    where = f"{crossing} or id::text = current_setting('rowsweep.tenant')"
    export = declared(rows=rs.Rows("orders", where=where), to=tmp_path, tenant=str, input=int)
    field.sweep(export, 3)
    assert rs.read_export(tmp_path).collect()["id"].to_list() == [3]
