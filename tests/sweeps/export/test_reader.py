"""Reading an export back: the types that went out, and a manifest that is checked."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rowsweep as rs
from rowsweep.errors import InvalidOption, PartChanged
from tests.sweeps.field import Field

KINDS = """
create table kinds (
  id int primary key, t text, n numeric(10, 2), f float8, b bool, d date, at timestamptz, plain timestamp, ti time,
  by bytea, u uuid, a int[], fa float8[], j jsonb, big numeric, wide numeric(60, 2));
insert into kinds values
  (1, E'a,"b\\nc', 1.5, 'NaN', true, '2024-01-01', '2024-01-01 12:00:00.123456+00', '2024-01-01', '12:00', '\\x00ff',
   '00000000-0000-0000-0000-000000000001', '{1,null,3}', '{NaN,-Infinity,0.5}', '{"a": [1]}', 1e50, 1.5),
  (2, '', null, '-inf', null, null, null, null, null, null, null, null, null, null, null, null),
  (3, null, -0.01, 0, false, '0001-01-01', '9999-12-31 23:59:59.999999+00', null, '23:59:59.999999', '', null, '{}',
   null, null, 0, 0)"""


@pytest.mark.parametrize("form", ["csv", "ndjson", "arrow"])
def test_every_format_reads_back_as_parquet_does(field: Field, tmp_path: Path, form: str) -> None:
    """D-7, N-092: the same frame, types and values, from any format; over several parts."""
    field.sql(KINDS)
    field.sweep(rs.export_rows("parquet", rs.Rows("kinds"), tmp_path / "parquet", part_rows=2))
    field.sweep(rs.export_rows("other", rs.Rows("kinds"), tmp_path / form, format=form, part_rows=2))
    expected = rs.read_export(tmp_path / "parquet", verify=True).collect()
    assert expected.schema["wide"] == pl.String
    assert expected["id"].to_list() == [1, 2, 3]
    assert_frame_equal(rs.read_export(tmp_path / form, verify=True).collect(), expected)


def test_an_export_that_is_not_whole_is_not_read(field: Field, tmp_path: Path) -> None:
    """N-095: without the mark, or with a part that is another, nothing is answered."""
    field.orders(10)
    field.sweep(rs.export_rows("orders", rs.Rows("orders"), tmp_path, part_rows=4))
    part = tmp_path / "part-00001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    rs.read_export(tmp_path)
    with pytest.raises(PartChanged, match="part-00001"):
        rs.read_export(tmp_path, verify=True)
    part.write_bytes(whole[:-1])
    with pytest.raises(PartChanged, match="part-00001"):
        rs.read_export(tmp_path)
    part.unlink()
    with pytest.raises(PartChanged, match="is gone"):
        rs.read_export(tmp_path)
    part.write_bytes(whole)
    assert rs.read_export(tmp_path).filter(pl.col("id") > 8).collect()["id"].to_list() == [9, 10]
    (tmp_path / "_SUCCESS").unlink()
    with pytest.raises(InvalidOption, match="no complete export"):
        rs.read_export(tmp_path)


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
def test_a_folder_whose_name_is_a_pattern_is_read_and_no_other(field: Field, tmp_path: Path, form: str) -> None:
    """N-095: `orders[1]` is a name; what `orders1` holds is not read for it."""
    field.orders(3)
    field.sweep(rs.export_rows("asked", rs.Rows("orders"), tmp_path / "orders[1]", format=form))
    field.sweep(rs.export_rows("other", rs.Rows("orders", where="id < 2"), tmp_path / "orders1", format=form))
    assert rs.read_export(tmp_path / "orders[1]").collect()["id"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
def test_names_that_need_quoting_are_read_back(field: Field, tmp_path: Path, form: str) -> None:
    """D-7: a column's name with quotes, a comma, a percent sign and a line's end, in every format."""
    name = 'a "b", 5%\nc'
    quoted = '"' + name.replace('"', '""') + '"'
    field.sql(f"create table odd (id int primary key, {quoted} text)")
    field.sql("insert into odd values (1, 'x'), (2, null), (3, '')")
    field.sweep(rs.export_rows("odd", rs.Rows("odd"), tmp_path, format=form, part_rows=2))
    read = rs.read_export(tmp_path, verify=True).collect()
    assert read.columns == ["id", name]
    assert read.rows() == [(1, "x"), (2, None), (3, "")]
