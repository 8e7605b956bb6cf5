"""Types through a whole pass: the same frame from every format, refusals that name the row, columns that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rowsweep as rs
from rowsweep.errors import SweepFailed
from rowsweep.jobs.registry import reset_jobs
from rowsweep.sweeps.passes.table import Pass
from tests.sweeps.field import NOW, Field

MAKE = """
create type mood as enum ('calm');
create table t (
  id int8 primary key, "100% a,b" numeric(12,4), i int8, f float8, r float4, b bool, s text, j jsonb, m mood,
  at timestamptz, lo timestamp, da date, ti time, "by" bytea, u oid, n numeric, li int8[], ls text[], ld numeric(5,2)[],
  la timestamptz[], lb bytea[], lf float8[])"""
FILL = r"""
insert into t values
(1, 12345678.1234, 9223372036854775807, 0.1, 0.1, true, E'a"b\\,\n''', '{"a": 1.50}', 'calm',
 '9999-12-31 23:59:59.999999Z', '0001-01-01', '0001-01-01', '23:59:59.999999', '\x00ff', 4294967295, 1e-30, '{1,null}',
 array['a', '', null, E'"\n'], '{1.5,null}', '{2024-02-29 00:00:00.5+00,null}', array['\x00'::bytea, null],
 '{0.1,-Infinity,null}'),
(3, -0.0001, -9223372036854775808, '-Infinity', 'Infinity', false, '', 'null', null, '0001-01-01 00:00Z',
 '9999-12-31 23:59:59.999999', '9999-12-31', '00:00', '', 0, -5, '{}', '{}', '{}', '{}', '{}', '{}');
insert into t (id, s) values (2, null), (4, 'NULL'), (5, null), (6, null)"""


def declare(folder: Path, **given: Any) -> rs.Export[Any]:
    """Declare an export of `t` in parts of two keys, retried at once."""
    options: dict[str, Any] = {"rows": rs.Rows("t"), "to": folder, "part_rows": 2, "retry": NOW}
    return rs.export_rows("t", **(options | given))


def test_every_format_reads_back_as_the_same_typed_frame(field: Field, tmp_path: Path) -> None:
    """D-7, N-092: extreme values, nulls, empty texts and lists; in parts, of which one has no value at all."""
    field.sql(MAKE)
    field.sql(FILL)
    frames = {}
    for form in ("parquet", "arrow", "csv", "ndjson"):
        reset_jobs()
        assert field.sweep(declare(tmp_path / form, format=form))["rows"] == 6
        frames[form] = rs.read_export(tmp_path / form, verify=True).collect()
    truth = frames["parquet"]
    assert truth.schema["100% a,b"] == pl.Decimal(12, 4)
    assert truth.schema["la"] == pl.List(pl.Datetime("us", "UTC"))
    assert truth["s"].to_list() == ["a\"b\\,\n'", None, "", "NULL", None, None]
    for form, frame in frames.items():
        assert frame.schema == truth.schema, form
        assert [name for name in truth.columns if not frame[name].equals(truth[name])] == [], form


def test_a_value_that_no_part_can_hold_fails_its_part_by_key_and_goes_out_as_text(field: Field, tmp_path: Path) -> None:
    """N-092: the part before it stands, its own is not there."""
    field.sql("create table t (id int primary key, till date)")
    field.sql("insert into t values (1, '2024-01-01'), (2, null), (3, '2024-01-01'), (4, 'infinity')")
    with pytest.raises(SweepFailed, match=r"Column 'till' \(date\) holds 'infinity' in the row id=4"):
        field.sweep(declare(tmp_path / "a"))
    assert [entry.name for entry in (tmp_path / "a").glob("part-*")] == ["part-00000.parquet"]
    reset_jobs()
    field.sweep(declare(tmp_path / "b", as_text=["till"]))
    assert rs.read_export(tmp_path / "b").collect()["till"].to_list() == ["2024-01-01", None, "2024-01-01", "infinity"]


def test_a_column_that_changes_between_two_parts_ends_the_export_by_name(
    field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-092: no part has another schema than the manifest's, and no value is read with another type's eyes."""
    field.sql("create table t (id int primary key, price numeric(10,2))")
    field.sql("insert into t select i, i from generate_series(1, 6) i")
    committed = Pass._committed

    def alter(self: Pass, *given: Any) -> None:
        committed(self, *given)
        field.sql("alter table t alter price type numeric(12,3)")

    monkeypatch.setattr(Pass, "_committed", alter)
    with pytest.raises(SweepFailed, match=r"'price' was numeric\(10,2\) and is numeric\(12,3\) now"):
        field.sweep(declare(tmp_path))
    assert [entry.name for entry in tmp_path.glob("part-*")] == ["part-00000.parquet"]
