"""What the database says against a sweep is refused when it is launched, with the fix; nothing is queued then."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

import rowsweep as rs
from rowsweep.errors import InvalidDeclaration, InvalidKey, InvalidSweepSql, RowsweepError, UnknownSource
from rowsweep.jobs.registry import reset_jobs
from tests.sweeps.field import Field


def launched(rows: rs.Rows, assignments: dict[str, str] | None = None) -> Any:
    """Declare and launch a sweep over these rows."""
    reset_jobs()
    if assignments is not None:
        return rs.backfill("totals", rows=rows, set=assignments).launch()
    return rs.backfill("totals", lambda _: None, rows=rows).launch()


def refused(field: Field, error: type[RowsweepError], rows: rs.Rows, *words: str, **given: Any) -> RowsweepError:
    """Launch what must be refused; the message has the words and nothing is queued."""
    with pytest.raises(error) as caught:
        launched(rows, given.get("set"))
    for word in words:
        assert word in str(caught.value)
    assert field.queue_sql("select count(*) from {x_jobs} union all select count(*) from {x_backfills}") == [(0,), (0,)]
    return caught.value


def test_an_unknown_table_is_refused_with_the_nearest_names(field: Field) -> None:
    """N-050: also in a schema, and a schema that does not exist."""
    field.orders(1)
    schema = field.one("select current_schema")
    refused(field, UnknownSource, rs.Rows("order"), "no table 'order'", "'orders'", "Rows('orders')")
    refused(field, UnknownSource, rs.Rows((schema, "ordrs")), f"{schema}.ordrs", f"'{schema}.orders'")
    refused(field, UnknownSource, rs.Rows("nowhere.orders"), "no table 'nowhere.orders'")
    refused(field, UnknownSource, rs.Rows("Orders"), "'orders'")
    field.sql("create temporary table passing (id int primary key)")  # another session's, for whoever sweeps
    assert "Rows('passing')" not in refused(field, UnknownSource, rs.Rows("passing")).fix


def test_an_unknown_column_is_refused_with_the_nearest_names(field: Field) -> None:
    """N-050: among the columns read, the key and those set."""
    field.orders(1)
    refused(field, UnknownSource, rs.Rows("orders", columns=["pric"]), "no column 'pric'", "'price'")
    refused(field, UnknownSource, rs.Rows("orders", key="idd"), "no column 'idd'", "'id'")
    refused(field, UnknownSource, rs.Rows("orders"), "no column 'totl'", "'total'", set={"totl": "1"})


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("create view t as select 1 as id", ["a view", "the table behind it"]),
        ("create materialized view t as select 1 as id", ["a materialized view"]),
        (
            "create foreign data wrapper w; create server s foreign data wrapper w; create foreign table t () server s",
            ["a foreign table"],
        ),
        ("create sequence t", ["a sequence"]),
        (
            "create table t (id int primary key); create table child (primary key (id)) inherits (t)",
            ["inheritance children", "each child"],
        ),
    ],
)
def test_what_has_no_key_of_its_own_is_refused_with_the_reason(field: Field, ddl: str, words: list[str]) -> None:
    """N-050: views, foreign tables, parents of an inheritance."""
    field.sql("set client_min_messages = warning")
    field.sql(ddl)
    try:
        refused(field, InvalidKey, rs.Rows("t"), *words)
    finally:
        field.sql("drop server if exists s cascade; drop foreign data wrapper if exists w")


@pytest.mark.parametrize(
    ("columns", "index", "key", "words"),
    [
        ("id int", None, None, ["no primary key", "create unique index concurrently"]),
        ("id int not null", "unique index on t (id)", None, ["no primary key", "Rows(…, key=['id'])"]),
        ("id int primary key, n int", "unique index on t (n)", "n", ["may be null", "key=['id']"]),
        ("a int not null, b int, unique (a, b)", None, ["a", "b"], ['" alter column "b" set not null']),
        ("id int primary key, n int not null", "index on t (n)", "n", ["no unique index", "key=['id']"]),
        ("id int primary key, n int not null", "unique index on t (n) where n > 0", "n", ["partial"]),
        ("id int primary key, n int not null", "unique index on t ((n + 1))", "n", ["no unique index"]),
        ("id int primary key, n int not null unique deferrable", None, "n", ["deferrable"]),
        ("id int primary key deferrable initially deferred", None, None, ["deferrable"]),
        ("id int primary key, n int not null", "unique index on t (n, id desc)", ["n", "id"], ["directions"]),
        ("id int primary key, n int not null", "unique index on t (n) include (id)", ["n", "id"], ["no unique index"]),
        ("id int primary key, n text not null", "unique index on t (n text_pattern_ops)", "n", ["operator class"]),
        (
            'id int primary key, n text collate "C" not null',
            'unique index on t (n collate "POSIX")',
            "n",
            ["collation"],
        ),
    ],
)
def test_an_index_that_proves_no_order_is_refused_with_the_reason(
    field: Field, columns: str, index: str | None, key: Any, words: list[str]
) -> None:
    """N-052: partial, on expressions, deferrable, nullable, mixed directions, another collation or operator class."""
    field.sql(f"create table t ({columns})")
    if index is not None:
        field.sql(f"create {index}")
    refused(field, InvalidKey, rs.Rows("t", key=key), *words)


def test_an_index_that_is_not_valid_is_refused(field: Field) -> None:
    """N-052: what a failed CREATE INDEX CONCURRENTLY leaves behind."""
    field.sql("create table t (id int primary key, n int not null); create unique index made on t (n)")
    field.sql("update pg_index set indisvalid = false where indexrelid = 'made'::regclass")
    refused(field, InvalidKey, rs.Rows("t", key="n"), "not valid")


def test_the_sql_that_a_refusal_names_makes_a_usable_key(field: Field) -> None:
    """N-052: the fix is a command that works."""
    field.sql('create table "my table" ("the id" int)')
    error = refused(field, InvalidKey, rs.Rows("my table"), "no primary key")
    for statement in error.fix.split(";"):
        field.sql(statement)
    assert "Rows(…, key=['the id'])" in error.fix
    launched(rs.Rows("my table", key="the id"))


def test_a_key_whose_operators_are_out_of_reach_is_refused(field: Field) -> None:
    """N-053: a type of another schema would be compared as some other type."""
    field.sql("create schema if not exists rowsweep_elsewhere; create extension citext schema rowsweep_elsewhere")
    try:
        field.sql("create table t (id rowsweep_elsewhere.citext primary key)")
        refused(field, InvalidKey, rs.Rows("t"), "search_path", "rs.connect(")
    finally:
        field.sql("set client_min_messages = warning; drop schema rowsweep_elsewhere cascade")


def test_set_may_not_write_key_or_generated_columns(field: Field) -> None:
    """N-051."""
    field.orders(1, more=", twice bigint generated always as (id * 2) stored, ident int generated always as identity")
    refused(field, InvalidDeclaration, rs.Rows("orders"), "'id'", "key column", "another key", set={"id": "id + 1"})
    refused(field, InvalidDeclaration, rs.Rows("orders"), "'twice'", "generates itself", set={"twice": "1"})
    refused(field, InvalidDeclaration, rs.Rows("orders"), "'ident'", "generates itself", set={"ident": "1"})


def test_set_may_not_write_what_a_key_column_is_computed_from(field: Field) -> None:
    """N-051, N-053: each row would move ahead of the cursor, to be swept again without end."""
    field.sql("create table t (id int, n int, k int generated always as (id * 2) stored primary key)")
    refused(field, InvalidDeclaration, rs.Rows("t"), "'id'", "from which 'k' is computed", set={"id": "id + 100"})
    assert rs.backfill("ns", rows=rs.Rows("t"), set={"n": "1"}).preview(1).height == 0


@pytest.mark.parametrize(
    "text",
    [
        "price > 1) or (true",
        "true then 1 when",
        "true end, case when true then true",
        "true) from orders where (true",
        "price >",
        "nothing > 1",
        "/* price > 1",
        "'price > 1",
        "$$price > 1",
        "true; delete from orders",
        "price > 1 limit 5",
        "select true",
        "1",
        "price",
        "count(*) > 0",
        "row_number() over () > 0",
        "generate_series(1, 2) > 0",
        "price = any(%(ids)s)",
    ],
)
def test_a_where_that_is_not_one_expression_is_refused_with_what_postgres_says(field: Field, text: str) -> None:
    """N-049: nothing escapes its parentheses; whatever does not plan is found before a run."""
    field.orders(3)
    error = refused(field, InvalidSweepSql, rs.Rows("orders", where=text), "where", repr(text), "Postgres says: ")
    assert error.meta["field"] == "where"
    assert field.one("select count(*) from orders") == 3


@pytest.mark.parametrize(
    "text",
    [
        "1) , (band = 'x'",
        "1 then 2",
        "1, band = 'x'",
        "price +",
        "nothing",
        "default",
        "sum(price)",
        "'x'::date",
        "1; 2",
    ],
)
def test_a_set_that_is_not_one_expression_is_refused(field: Field, text: str) -> None:
    """N-049: each expression by itself."""
    field.orders(3)
    refused(field, InvalidSweepSql, rs.Rows("orders"), "set", "Postgres says: ", set={"total": text})


@pytest.mark.parametrize(("params", "name"), [(None, "least"), ({"most": 2}, "least")])
def test_a_value_that_is_not_bound_is_named(field: Field, params: dict[str, Any] | None, name: str) -> None:
    """N-049: also where the declaration has no params at all, so that the text reaches the server as it stands."""
    field.orders(3)
    rows = rs.Rows("orders", where="price > %(least)s", params=params)
    assert refused(field, InvalidSweepSql, rows, "where").fix == f'params={{"{name}": …}}'


def test_a_value_of_another_type_is_refused_with_the_column_that_it_is_for(field: Field) -> None:
    """N-049."""
    field.orders(3)
    refused(field, InvalidSweepSql, rs.Rows("orders"), "price = 'abc'", set={"price": "'abc'", "band": "'x'"})


def test_rights_that_lack_are_said_and_not_the_expression_blamed(field: Field) -> None:
    """N-049: it is the role that has to change; its password is in no error."""
    field.orders(3)
    role = f"reader_{field.one('select current_schema')}"
    field.sql(f"create role {role} login password 'hidden'; grant select on orders to {role}")
    field.sql(f"grant usage on schema {field.one('select current_schema')} to {role}")
    source = make_conninfo(field.dsn, user=role, password="hidden")
    try:
        sweep = rs.backfill("totals", rows=rs.Rows("orders"), set={"total": "price"}, source=source)
        with pytest.raises(InvalidSweepSql, match="permission denied for table orders") as caught:
            sweep.launch()
    finally:
        field.sql(f"drop owned by {role}; drop role {role}")
    assert "grant" in caught.value.fix
    assert "one expression" not in str(caught.value)
    assert "hidden" not in f"{caught.value} {caught.value.meta}"


def test_an_expression_of_another_type_is_refused(field: Field) -> None:
    """N-049: found at launch, as the whole statement would say."""
    field.orders(3)
    refused(field, InvalidSweepSql, rs.Rows("orders"), "set", "type", set={"qty": "'2025-01-01'::date"})


@pytest.mark.parametrize(
    ("where", "swept"),
    [
        ("id <= 2 -- the first two", 2),
        ("id <= 2 /* the first two */", 2),
        ("id = 1 or id = 3", 2),
        ("band like '100%' or band like '%s' or id %% 2 = 0", None),
        ("band like '100%' or band like '%s' or id % 2 = 0", 3),
        ("orders.id > 2", 3),
        ("exists (select from orders o where o.id = orders.id + 1)", 4),
        ("(\nid\n)\n=\n5", 1),
    ],
)
def test_a_where_is_the_applications_own_sql(field: Field, where: str, swept: int | None) -> None:
    """N-049: in parentheses on lines of its own; a % is ordinary where nothing is bound."""
    field.orders(5)
    field.sql("update orders set band = '100% sure' where id = 5")
    sweep = rs.backfill("totals", rows=rs.Rows("orders", where=where), set={"total": "0"})
    if swept is None:
        with pytest.raises(InvalidSweepSql):
            sweep.launch()
        return
    assert field.sweep(sweep)["rows"] == swept
    assert field.one("select count(*) from orders where total = 0") == swept


def test_parameters_are_bound_in_where_and_set(field: Field) -> None:
    """N-049: numbers, text, lists, null and instants by name; a doubled % is one there."""
    field.orders(10)
    sweep = rs.backfill(
        "totals",
        rows=rs.Rows(
            "orders",
            where="id = any(%(ids)s) and id %% 2 = 0 and %(none)s::text is null and now() > %(at)s",
            params={"ids": [1, 2, 3, 4], "label": "50%s \"'", "none": None, "at": "2020-01-01"},
        ),
        set={"band": "%(label)s"},
    )
    assert field.sweep(sweep)["rows"] == 2
    assert field.sql("select id, band from orders where band is not null order by 1") == [
        (2, "50%s \"'"),
        (4, "50%s \"'"),
    ]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("price > %(cutof)s", ["cutof", 'params={"cutof": …}']),
        ("price > %(cutoff)s and band like 'a%'", ["%%"]),
        ("price > %s", ["%(name)s"]),
    ],
)
def test_parameters_that_are_missing_or_misspelt_are_refused_with_the_fix(
    field: Field, where: str, words: list[str]
) -> None:
    """N-049: the fix says what to write."""
    field.orders(1)
    error = refused(field, InvalidSweepSql, rs.Rows("orders", where=where, params={"cutoff": 1}), "where")
    for word in words:
        assert word in error.cause + error.fix
