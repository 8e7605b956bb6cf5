"""Formats and their options: refused early, with what works; and what each option does to the file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, parquet

from rowsweep.errors import InvalidDeclaration, InvalidOption
from rowsweep.sweeps.export.formats.arrow_file import ArrowFile
from rowsweep.sweeps.export.formats.delimited import Csv
from rowsweep.sweeps.export.formats.format import Format, as_format
from rowsweep.sweeps.export.formats.ndjson import Ndjson
from rowsweep.sweeps.export.formats.parquet import Parquet
from tests.sweeps.export.reading import Pipe, export, written

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)


def free(values: list[str | None], name: str = "s") -> Any:
    """Answer a batch with one column of free text."""
    field = pa.field(name, pa.string(), metadata={"free_text": "yes"})
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string())], schema=pa.schema([field]))


@pytest.mark.parametrize(
    ("word", "kind"), [("parquet", Parquet), ("csv", Csv), ("ndjson", Ndjson), ("arrow", ArrowFile)]
)
def test_a_word_is_a_format_with_its_defaults(word: str, kind: type[Format]) -> None:
    """D-7."""
    made = as_format(word)
    assert made == kind()
    assert as_format(made) is made
    assert made.name == word
    assert made.suffix == f".{word}"
    assert json.loads(json.dumps(made.as_json()))["name"] == word


@pytest.mark.parametrize(
    ("value", "near"), [("parket", "'parquet'"), ("CSV", "'csv'"), (Csv, "'parquet'"), (7, "'parquet'")]
)
def test_another_word_is_refused_with_the_nearest(value: object, near: str) -> None:
    """D-7, N-114."""
    with pytest.raises(InvalidDeclaration) as refused:
        as_format(value)
    assert near in refused.value.fix


@pytest.mark.parametrize(
    "make",
    [
        lambda: Parquet(compression="zst"),
        lambda: Parquet(row_group_rows=0),
        lambda: Parquet(compression_level=23),
        lambda: Parquet(compression="snappy", compression_level=1),
        lambda: ArrowFile(compression="snappy"),
        lambda: Csv(bom="yes"),  # type: ignore[arg-type]
        lambda: Csv(guard_formulas=1),  # type: ignore[arg-type]
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(make: Any) -> None:
    """D-35: before anything is exported."""
    with pytest.raises(InvalidOption):
        make()


def test_parquet_has_row_groups_of_the_given_size_compressed_as_asked() -> None:
    """D-7: however the batches come."""
    batches = [pa.record_batch({"n": pa.array(range(at, at + 70))}) for at in range(0, 700, 70)]
    pipe = Pipe()
    assert Parquet(row_group_rows=300).write(iter(batches), batches[0].schema, pipe) == 700  # type: ignore[arg-type]
    file = parquet.ParquetFile(pa.BufferReader(bytes(pipe.written)))
    groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
    assert [group.num_rows for group in groups] == [300, 300, 100]
    assert groups[0].column(0).compression == "ZSTD"
    assert file.read().column("n").to_pylist() == list(range(700))


def test_wide_rows_make_smaller_row_groups_and_are_never_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-058: memory does not grow with the part."""
    from rowsweep.sweeps.export.formats import parquet as writing

    monkeypatch.setattr(writing, "_GROUP_BYTES", 64 << 10)
    held: list[int] = []
    pipe = Pipe()

    def batches() -> Iterator[Any]:
        for _ in range(12):
            held.append(len(pipe.written))
            yield pa.record_batch({"s": pa.array(["x" * (16 << 10)])})

    assert Parquet(compression="none").write(batches(), pa.schema([("s", pa.string())]), pipe) == 12  # type: ignore[arg-type]
    file = parquet.ParquetFile(pa.BufferReader(bytes(pipe.written)))
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [4, 4, 4]
    assert held[3] == held[0] < held[4] < held[8]


@pytest.mark.parametrize("word", ["parquet", "csv", "ndjson", "arrow"])
def test_a_part_without_rows_is_a_whole_file_with_the_schema(word: str) -> None:
    """N-096."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    pipe = Pipe()
    assert as_format(word).write(iter([]), schema, pipe) == 0  # type: ignore[arg-type]
    data = bytes(pipe.written)
    if word in ("csv", "ndjson"):
        assert data == {"csv": b"a,b\n", "ndjson": b""}[word]
    else:
        back = parquet.read_table if word == "parquet" else feather.read_table
        assert back(pa.BufferReader(data)).schema.types == schema.types


@given(st.lists(st.one_of(st.none(), texts), max_size=6), st.booleans())
def test_any_text_comes_back_from_csv_and_ndjson(values: list[str | None], crlf: bool) -> None:
    """D-7: RFC 4180 quoting, JSON escapes; NULL apart."""
    batch = pa.record_batch({"n": pa.array(range(len(values)), pa.int64()), "s": pa.array(values, pa.string())})
    data = written(Csv(crlf=crlf), batch).decode()
    read = list(csv.reader(io.StringIO(data, newline=""), strict=True))
    assert read == [["n", "s"], *([str(at), value or ""] for at, value in enumerate(values))]
    end = "\r\n" if crlf else "\n"
    for at, value in enumerate(values):
        if not value:
            assert f"{end}{at},{'' if value is None else chr(34) * 2}{end}" in data
    lines = written(Ndjson(), batch).split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == [{"n": at, "s": value} for at, value in enumerate(values)]
    assert lines[-1] == b""


def test_every_control_character_is_escaped_in_ndjson() -> None:
    """RFC 8259: each alone, so that none is escaped for another's sake."""
    for character in map(chr, range(1, 0x80)):
        (line,) = written(Ndjson(), free([f"a{character}"])).splitlines()
        assert json.loads(line) == {"s": f"a{character}"}


def test_a_byte_order_mark_comes_only_where_it_is_asked_for() -> None:
    """D-7."""
    batch = free(["é"])
    assert written(Csv(), batch) == 's\n"é"\n'.encode()
    assert written(Csv(bom=True, crlf=True), batch) == b"\xef\xbb\xbf" + 's\r\n"é"\r\n'.encode()


def test_formulas_are_guarded_in_free_text_only(connection: psycopg.Connection[Any]) -> None:
    """D-7: a number that is text, an interval or money stays what it is; so does every text that starts otherwise."""
    connection.execute(
        """create domain note as varchar(20); create type mood as enum ('-bad', 'good');
           create table t (id int primary key, "=x" text, d note, m mood, n numeric, i interval, p money, l text[])"""
    )
    connection.execute(
        """insert into t values (-1, '=1+1', '@a', '-bad', -5, '-1 day', -2, '{=1}'),
           (2, E'\\t=1', E'\\r=1', 'good', 5, '1 day', 2, '{}'), (3, '+1', '-1', null, null, null, null, null),
           (4, 'a=1', '', null, null, null, null, null), (5, ' =1', '''=1', null, null, null, null, null)"""
    )
    batch = export(connection, "t")
    guarded = written(Csv(guard_formulas=True), batch).decode()
    assert list(csv.reader(io.StringIO(guarded, newline=""))) == [
        ["id", "'=x", "d", "m", "n", "i", "p", "l"],
        ["-1", "'=1+1", "'@a", "'-bad", "-5", "-1 days", "-$2.00", '["=1"]'],
        ["2", "'\t=1", "'\r=1", "good", "5", "1 day", "$2.00", "[]"],
        ["3", "'+1", "'-1", "", "", "", "", ""],
        ["4", "a=1", "", "", "", "", "", ""],
        ["5", " =1", "'=1", "", "", "", "", ""],
    ]
    assert "'" not in written(Csv(), batch.slice(0, 4)).decode()


def test_names_are_quoted_where_they_must_be() -> None:
    """RFC 4180, RFC 8259: a column may be called anything."""
    batch = pa.record_batch([pa.array([1]), pa.array([2]), pa.array([3])], names=['a"b', "c,d\n", " e"])
    assert written(Csv(), batch).decode() == '"a""b","c,d\n"," e"\n1,2,3\n'
    assert json.loads(written(Ndjson(), batch)) == {'a"b': 1, "c,d\n": 2, " e": 3}


def test_a_batch_of_long_texts_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-058: what is put together at once is bounded."""
    from rowsweep.sweeps.export.formats import texts

    monkeypatch.setattr(texts, "_SLICE_BYTES", 100)
    batch = pa.record_batch({"s": pa.array(["x" * 60, None, "y" * 60, ""])})
    assert [piece.num_rows for piece in texts.slices(batch)] == [2, 2]
    assert written(Csv(), batch).decode() == f's\n"{"x" * 60}"\n\n"{"y" * 60}"\n""\n'
    lines = written(Ndjson(), batch).split()
    assert [json.loads(line)["s"] for line in lines] == ["x" * 60, None, "y" * 60, ""]
