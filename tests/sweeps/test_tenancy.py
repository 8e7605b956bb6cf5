"""What holds inside a batch: the tenant, the pinned forms of values, and our own isolation and timeouts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import polars as pl
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import rowsweep as rs
from rowsweep.app.connecting import connect
from rowsweep.clock import real_monotonic
from rowsweep.queue.postgres.driver import PostgresDriver
from tests.sweeps.field import Field

SETTINGS = "select current_setting('rowsweep.tenant', true), current_setting('rowsweep.cross_tenant', true)"
ORDERS = rs.Rows("orders")


def looking(seen: list[Any], text: str = SETTINGS) -> Any:
    """Make a handler that notes what a query answers inside its batch."""

    def handler(batch: rs.Batch) -> None:
        seen.append(batch.execute(text).fetchone())

    return handler


def test_the_tenant_of_the_input_holds_inside_the_batch(field: Field) -> None:
    """N-009, N-010, S-032, S-204: "none" crosses tenants in its own pass only; a tenant's sweep never does."""
    field.orders(4)
    seen: list[Any] = []
    field.sweep(rs.backfill("all", looking(seen), rows=ORDERS))
    field.sweep(rs.backfill("one", looking(seen), rows=ORDERS, tenant=lambda name: name, input=str), "acme")
    assert seen == [("", "on"), ("acme", "off")]

    @rs.job("look", tenant="none")
    def look(ctx: rs.Ctx) -> None:
        with ctx.transaction() as tx:
            seen.append(tx.execute(SETTINGS).fetchone())

    look.enqueue()
    field.tick()
    assert seen[2][0] in ("", None)
    assert seen[2][1] in ("", None, "off")


def test_the_settings_hold_for_a_set_based_sweep_and_a_preview(field: Field) -> None:
    """N-009: the expressions see the tenant as a handler does."""
    field.orders(4)
    settings = "current_setting('rowsweep.tenant') || '/' || current_setting('rowsweep.cross_tenant')"
    sweep = rs.backfill("mark", rows=ORDERS, set={"band": settings}, tenant=lambda name: name, input=str, batch_rows=2)
    assert sweep.preview(2, "acme")["band_after"].to_list() == ["acme/off"] * 2
    field.sweep(sweep, "acme")
    assert field.sql("select band, count(*) from orders group by 1") == [("acme/off", 4)]
    again = rs.backfill("mark again", rows=ORDERS, set={"band": settings})
    field.sweep(again)
    assert field.sql("select band, count(*) from orders group by 1") == [("/on", 4)]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_page_is_read_as_its_tenant(field: Field, atomic: bool) -> None:
    """N-009, S-038: a row-level-security policy decides which rows a sweep has."""
    field.orders(6, more=", tenant text not null default 'acme'")
    field.sql("update orders set tenant = 'other' where id > 4")
    role = field.one("select current_user")
    field.sql(
        "alter table orders enable row level security; alter table orders force row level security; "
        "create policy own on orders using (tenant = current_setting('rowsweep.tenant', true) "
        "or current_setting('rowsweep.cross_tenant', true) = 'on')"
    )
    if field.one("select rolsuper from pg_roles where rolname = current_user"):
        owner = f"owner_{secrets.token_hex(4)}"
        field.sql(f"create role {owner} nologin; grant all on schema {field.one('select current_schema')} to {owner}")
        field.sql(f"alter table orders owner to {owner}; alter role {owner} nosuperuser")
        field.sql(
            f"grant all on schema {field.queue} to {owner}; grant all on all tables in schema {field.queue} to {owner}"
        )
        role = owner
    field.app.close()
    app = connect(driver=PostgresDriver(_as(field.dsn, role), schema=field.queue), work=False)
    field.app = app
    try:
        seen: list[int] = []

        def handler(batch: rs.Batch) -> pl.DataFrame:
            seen.extend(batch.frame["id"])
            return batch.frame.select("id", band=pl.lit("x"))

        sweep: Any = rs.backfill("one", handler, rows=ORDERS, atomic=atomic, tenant=lambda name: name, input=str)
        assert field.sweep(sweep, "acme")["rows"] == 4
        assert seen == [1, 2, 3, 4]
        assert field.sweep(rs.backfill("all", handler, rows=ORDERS, atomic=atomic))["rows"] == 6
    finally:
        for worker in field.workers:
            worker.stop(deadline_at=real_monotonic() + 5)
        field.workers.clear()
        app.close()
        if role != field.one("select current_user"):
            field.sql(f"reassign owned by {role} to current_user; drop owned by {role}; drop role {role}")


def _as(dsn: str, role: str) -> str:
    options = psycopg.conninfo.conninfo_to_dict(dsn)["options"]
    return make_conninfo(dsn, options=f"{options} -crole={role}")


PINNED = """select current_setting('transaction_isolation'), current_setting('transaction_read_only'),
    current_setting('DateStyle'), current_setting('TimeZone'), current_setting('IntervalStyle'),
    current_setting('bytea_output'), current_setting('lock_timeout'), current_setting('statement_timeout'),
    current_setting('idle_in_transaction_session_timeout')"""
EXPECTED = ("read committed", "off", "ISO, MDY", "UTC", "postgres", "hex", "300ms", "7s", "30s")


@pytest.fixture
def unlike(field: Field) -> Iterator[Field]:
    """A database whose role wants everything otherwise."""
    odd = {
        "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on",
        "datestyle": "German",
        "timezone": "Asia/Kolkata",
        "intervalstyle": "sql_standard",
        "bytea_output": "escape",
        "extra_float_digits": "-5",
        "lock_timeout": "1",
        "statement_timeout": "9999",
    }
    options = str(psycopg.conninfo.conninfo_to_dict(field.dsn)["options"])
    dsn = make_conninfo(field.dsn, options=" ".join([options, *(f"-c{name}={value}" for name, value in odd.items())]))
    field.app.close()
    field.app = connect(driver=PostgresDriver(dsn, schema=field.queue), work=False)
    yield field
    for worker in field.workers:
        worker.stop(deadline_at=real_monotonic() + 5)
    field.workers.clear()
    field.app.close()


def test_a_role_with_other_defaults_changes_nothing(unlike: Field) -> None:
    """N-118, N-054: read committed, read-write, our own timeouts, and texts that read back as the same value."""
    unlike.sql("create table t (k timestamptz, f float8, b bytea, v interval, n int not null default 0)")
    unlike.sql("alter table t add primary key (k, f, b, v)")
    unlike.sql(
        "insert into t select timestamptz '2025-03-04 05:06:07.000001Z' + i * interval '1 us', 0.1 + i / 3e15::float8, "
        r"('\x00ff5c' || lpad(to_hex(i), 2, '0'))::bytea, i * interval '-1 hour' from generate_series(1, 20) i"
    )
    seen: list[Any] = []

    def handler(batch: rs.Batch) -> pl.DataFrame:
        seen.append(batch.execute(PINNED).fetchone())
        return batch.frame.select("k", "f", "b", "v", n=pl.col("n") + 1)

    options: dict[str, Any] = {"batch_rows": 3, "adapt": False, "lock_timeout": "300ms", "statement_timeout": "7s"}
    unlike.sweep(rs.backfill("frames", handler, rows=rs.Rows("t"), **options))
    assert set(seen) == {EXPECTED}
    assert unlike.sql("select n, count(*) from t group by 1") == [(1, 20)]
    unlike.sweep(rs.backfill("sets", rows=rs.Rows("t"), set={"n": "n + 1"}, **options))
    assert unlike.sql("select n, count(*) from t group by 1") == [(2, 20)]


def test_nothing_of_a_batch_stays_on_a_pooled_connection(field: Field) -> None:
    """N-009: neither its settings nor what a handler set for its session."""
    field.orders(4)

    def handler(batch: rs.Batch) -> None:
        batch.execute(
            "set search_path = nowhere; set statement_timeout = '1s'; create temporary table left_over (a int)"
        )

    field.sweep(rs.backfill("leave", handler, rows=ORDERS))
    pools = field.app.driver
    with pools.sweep_connection() as connection:
        found = connection.execute(
            "select current_setting('rowsweep.tenant', true), current_setting('statement_timeout'), "
            "to_regclass('pg_temp.left_over'), current_setting('search_path')"
        ).fetchone()
    assert found is not None
    assert (found[0] in ("", None), found[2]) == (True, None)
    assert found[3] == field.one("select current_setting('search_path')")
