"""What was written is read back as it was by the readers that people have."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from rowsweep.sweeps.export.formats.format import as_format
from tests.sweeps.export.reading import export, written

Connection = psycopg.Connection[Any]
NASTY = 'a"b\\c\n\r\t\x01🙂,'
WIDEST = Decimal("9999999999999999999999999999.0000000001")
MAKE = """
create table t (id int primary key, i int8, d numeric(38,10), f float8, s text, ts timestamptz, tn timestamp, da date,
                ti time, b bytea, bo bool, u oid)"""
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - as timestamp has it
ROWS: list[tuple[Any, ...]] = [
    (1, 2**63 - 1, WIDEST, 0.1, NASTY, LAST.replace(tzinfo=UTC), FIRST, date(1, 1, 1), time(12), b"\x00\xff", True,
     2**32 - 1),
    (2, *[None] * 11),
    (3, -(2**63), -WIDEST, -math.inf, "", FIRST.replace(tzinfo=UTC), LAST, date(9999, 12, 31),
     time(23, 59, 59, 999999), b"", False, 0),
    (4, 0, Decimal("0E-10"), 5e-324, "NULL", *[None] * 7),
]  # fmt: skip


@pytest.fixture
def files(connection: Connection, tmp_path: Path) -> Path:
    """A folder with the table in each format."""
    connection.execute(MAKE)
    with connection.cursor() as cursor:
        cursor.executemany(f"insert into t values ({', '.join(['%s'] * 12)})", ROWS)
    batch = export(connection, "t")
    for name in ("parquet", "csv", "ndjson", "arrow"):
        (tmp_path / f"t.{name}").write_bytes(written(as_format(name), batch))
    connection.execute("insert into t (id, f) values (5, 'NaN')")
    return tmp_path


def rows(table: Any) -> list[tuple[Any, ...]]:
    """Answer the rows of an Arrow table as tuples."""
    return [tuple(row.values()) for row in table.to_pylist()]


def test_every_reader_of_parquet_and_arrow_reads_the_same_values(files: Path) -> None:
    """N-092: both ends of what a type holds, NULL, and the empty text."""
    assert rows(parquet.read_table(files / "t.parquet")) == ROWS
    assert rows(feather.read_table(files / "t.arrow", memory_map=False)) == ROWS
    assert pl.read_parquet(files / "t.parquet").rows() == ROWS
    assert pl.read_ipc(files / "t.arrow").rows() == ROWS
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        assert duck.execute("select * from read_parquet(?)", [str(files / "t.parquet")]).fetchall() == ROWS


def test_every_reader_of_csv_tells_null_from_the_empty_text(files: Path) -> None:
    """D-7: as docs/types.md says how."""
    path = files / "t.csv"
    kinds: dict[str, Any] = {
        "id": pl.Int32, "d": pl.Decimal(38, 10), "f": pl.Float64, "ts": pl.Datetime("us", "UTC"),
        "tn": pl.Datetime("us"), "da": pl.Date, "ti": pl.Time,
    }  # fmt: skip
    in_hex = [(*row[:9], None if row[9] is None else "\\x" + row[9].hex(), *row[10:]) for row in ROWS]
    assert pl.read_csv(path, schema_overrides=kinds).rows() == in_hex
    with duckdb.connect() as duck:
        texts = duck.execute("select s from read_csv(?, allow_quoted_nulls = false)", [str(path)]).fetchall()
    assert texts == [(row[4],) for row in ROWS]
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    table = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=options)
    assert table.column("s").to_pylist() == [row[4] for row in ROWS]


def test_postgres_reads_its_own_csv_back(files: Path, connection: Connection) -> None:
    """D-7: the whole file, by COPY."""
    connection.execute("create table back (like t)")
    with connection.cursor().copy("copy back from stdin (format csv, header)") as copy:
        copy.write((files / "t.csv").read_bytes())
    differing = (
        "(select * from t where id < 5 except select * from back) union all (select * from back except select * from t)"
    )
    assert connection.execute(f"select * from ({differing}) d".encode()).fetchall() == []
    assert connection.execute("select count(*) from back").fetchall() == [(4,)]


def test_every_reader_of_ndjson_reads_exact_numbers(files: Path) -> None:
    """D-7: an int8 is a number, a decimal a string; a reader makes a double of neither."""
    path = files / "t.ndjson"
    objects = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert [one["i"] for one in objects] == [row[1] for row in ROWS]
    assert [one["d"] and Decimal(one["d"]) for one in objects] == [row[2] for row in ROWS]
    assert [one["s"] for one in objects] == [row[4] for row in ROWS]
    assert [one["f"] for one in objects] == [0.1, None, "-Infinity", 5e-324]
    assert [one["ts"] and datetime.fromisoformat(one["ts"]) for one in objects] == [row[5] for row in ROWS]
    with duckdb.connect() as duck:
        columns = "{i: 'bigint', d: 'decimal(38,10)', f: 'double', s: 'varchar'}"
        found = duck.execute(f"select * from read_json(?, columns = {columns})", [str(path)]).fetchall()
    assert found == [row[1:5] for row in ROWS]
    frame = pl.read_ndjson(path).select("i", pl.col("d").cast(pl.Decimal(38, 10)), pl.col("f").cast(pl.Float64), "s")
    assert frame.rows() == [row[1:5] for row in ROWS]


def test_nan_is_written_by_its_name_and_reads_back_as_nan(files: Path, connection: Connection) -> None:
    """N-092: in each format."""
    batch = export(connection, "t").select(["f"]).slice(4)
    assert written(as_format("csv"), batch) == b"f\nNaN\n"
    assert written(as_format("ndjson"), batch) == b'{"f":"NaN"}\n'
    for name, back in (("parquet", parquet.read_table), ("arrow", feather.read_table)):
        (value,) = back(pa.BufferReader(written(as_format(name), batch))).column("f").to_pylist()
        assert math.isnan(value)


def test_decimals_beyond_38_digits_are_whole_in_each_file(connection: Connection, tmp_path: Path) -> None:
    """N-092: pyarrow reads them, polars refuses them, duckdb makes doubles of them, as docs/types.md says."""
    number = "123456789012345678901234567890123456789012345678.125"
    connection.execute("create table t (id int primary key, d numeric(60,3))")
    connection.execute("insert into t values (1, %s)", [number])
    batch = export(connection, "t").select(["d"])
    path = tmp_path / "t.parquet"
    path.write_bytes(written(as_format("parquet"), batch))
    assert parquet.read_table(path).column("d").to_pylist() == [Decimal(number)]
    assert written(as_format("csv"), batch).decode() == f"d\n{number}\n"
    assert written(as_format("ndjson"), batch).decode() == f'{{"d":"{number}"}}\n'
    with pytest.raises(pl.exceptions.InvalidOperationError, match="38"):
        pl.read_parquet(path)
    with duckdb.connect() as duck:
        assert duck.execute("select d from read_parquet(?)", [str(path)]).fetchall() == [(float(number),)]


def test_a_file_of_one_column_keeps_its_nulls(connection: Connection, tmp_path: Path) -> None:
    """D-7: a line that is empty."""
    connection.execute("create table t (id int primary key, s text)")
    connection.execute("insert into t values (1, null), (2, ''), (3, 'x')")
    path = tmp_path / "t.csv"
    path.write_bytes(written(as_format("csv"), export(connection, "t").select(["s"])))
    assert path.read_bytes() == b's\n\n""\n"x"\n'
    assert pl.read_csv(path)["s"].to_list() == [None, "", "x"]
    with duckdb.connect() as duck:
        found = duck.execute("select s from read_csv(?, allow_quoted_nulls = false)", [str(path)]).fetchall()
    assert found == [(None,), ("",), ("x",)]
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    whole = csv.read_csv(path, parse_options=csv.ParseOptions(ignore_empty_lines=False), convert_options=options)
    assert whole.column("s").to_pylist() == [None, "", "x"]
