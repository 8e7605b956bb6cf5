"""Every line of docs/types.md is true: its types, its examples, its refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowsweep.errors import InvalidFrame
from rowsweep.sweeps.export.formats.delimited import Csv
from rowsweep.sweeps.export.formats.ndjson import Ndjson
from tests.sweeps.export.reading import described, export, read, written

Connection = psycopg.Connection[Any]
PAGE = (Path(__file__).parents[4] / "docs" / "types.md").read_text(encoding="utf-8")
CELL = re.compile(r"(?:`([^`]*)`)?")


def table_under(head: str) -> list[list[str]]:
    """Answer the cells of the table whose first line is given."""
    lines = PAGE[PAGE.index(head) :].split("\n\n")[0].splitlines()[2:]
    rows = []
    for line in lines:
        cells = [CELL.fullmatch(cell.strip()) for cell in line.strip("|").split("|")]
        assert all(cells), line
        rows.append([(cell and cell[1]) or "" for cell in cells])
    return rows


MAPPING = table_under("| Postgres | Arrow | example | csv | ndjson |")
REFUSED = table_under("| in a column of | value |")


def test_each_line_of_the_mapping_is_what_files_hold(connection: Connection) -> None:
    """D-7, N-092: type, csv and ndjson of each example."""
    known = {name for (name,) in connection.execute("select format_type(oid, null) from pg_catalog.pg_type").fetchall()}
    lines = [line for line in MAPPING if re.sub(r"\(.*?\)|\[\]", "", line[0]) in known or "(" in line[0]]
    names = [f"c{at}" for at in range(len(lines))]
    columns = ", ".join(f"{name} {line[0]}" for name, line in zip(names, lines, strict=True))
    connection.execute(f"create table t (id int primary key, {columns})".encode())
    connection.execute(f"insert into t values (1, {', '.join(line[2] for line in lines)})".encode())
    batch = export(connection, "t")
    assert [str(kind) for kind in batch.schema.types[1:]] == [line[1] for line in lines]
    for at, line in enumerate(lines, start=1):
        column = batch.select([at])
        assert written(Csv(), column).decode() == f"c{at - 1}\n{line[3].replace('⏎', chr(10))}\n", line
        assert written(Ndjson(), column).decode() == f'{{"c{at - 1}":{line[4]}}}\n', line


def test_every_built_in_type_is_in_the_mapping(connection: Connection) -> None:
    """N-092: with the Arrow type that it gets, whatever its modifiers."""
    types = connection.execute(
        "select format_type(t.oid, null) from pg_catalog.pg_type t where t.typnamespace = 'pg_catalog'::regnamespace"
        " and t.typtype in ('b', 'r', 'm')"
        " and not exists (select from pg_catalog.pg_type e where e.oid = t.typelem and e.typarray = t.oid)"
    ).fetchall()
    assert {name for (name,) in types} <= {re.sub(r"\(.*?\)", "", line[0]) for line in MAPPING} | {"bit"}
    mapped = {line[0]: line[1] for line in MAPPING}
    plain = [name for (name,) in types if name in mapped]
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(plain))
    connection.execute(f"create table t (id int primary key, {columns})".encode())
    assert [str(field.arrow) for field in described(connection, "t").fields[1:]] == [mapped[name] for name in plain]


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_value_that_no_file_can_hold_is_refused_by_column_value_and_key(
    connection: Connection, kind: str, value: str
) -> None:
    """N-092: never a wrong value; as text it goes out."""
    connection.execute(f"create table t (id text primary key, odd {kind})".encode())
    connection.execute(f"insert into t values ('a', null), ('k 7', {value}), ('z', null)".encode())
    with pytest.raises(InvalidFrame) as refused:
        export(connection, "t")
    assert "'odd'" in refused.value.cause
    assert "id=k 7" in refused.value.cause
    assert "as_text=['odd']" in refused.value.fix
    connection.execute("set timezone = 'UTC'")
    ((text,),) = connection.execute("select odd::text from t where odd is not null").fetchall()
    assert read(connection, described(connection, "t", as_text=["odd"])).column("odd").to_pylist() == [None, text, None]
