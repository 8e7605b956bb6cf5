"""Sweeps written by hand with psycopg: what ours is measured against."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import psycopg


def set_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Walk the key and update page by page, a commit a batch, no checkpoint: the fastest form found.

    One statement finds the page's last key and updates its range; the statement is prepared (psycopg's default).
    """
    statement = f"""
        with page as materialized (
            select max(id) as last from (select id from {table} where id > %(after)s order by id limit %(rows)s) p
        ), changed as (
            update {table} set total = price * qty, writes = writes + 1
             where id > %(after)s and id <= (select last from page)
        ) select last from page"""
    after, batches = 0, 0
    with psycopg.connect(dsn) as connection:
        while True:
            row = connection.execute(statement, {"after": after, "rows": batch_rows}).fetchone()
            connection.commit()
            if row is None or row[0] is None:
                return batches
            after, batches = row[0], batches + 1


def split_set_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Do the same in two statements a batch: find the last key, then update the range."""
    find = f"select max(id) from (select id from {table} where id > %s order by id limit %s) p"
    change = f"update {table} set total = price * qty, writes = writes + 1 where id > %s and id <= %s"
    after, batches = 0, 0
    with psycopg.connect(dsn) as connection:
        while True:
            row = connection.execute(find, (after, batch_rows)).fetchone()
            if row is None or row[0] is None:
                return batches
            connection.execute(change, (after, row[0]))
            connection.commit()
            after, batches = row[0], batches + 1


def cursor_table_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Walk like `set_loop`, and keep the cursor in a table with a commit of its own: the usual script that resumes."""
    find = f"select max(id) from (select id from {table} where id > %s order by id limit %s) p"
    change = f"update {table} set total = price * qty, writes = writes + 1 where id > %s and id <= %s"
    store = "insert into sweep_cursor values (%s, %s) on conflict (name) do update set last = excluded.last"
    after, batches = 0, 0
    with psycopg.connect(dsn) as connection:
        connection.execute("create table if not exists sweep_cursor (name text primary key, last bigint not null)")
        connection.commit()
        while True:
            row = connection.execute(find, (after, batch_rows)).fetchone()
            if row is None or row[0] is None:
                return batches
            connection.execute(change, (after, row[0]))
            connection.commit()
            connection.execute(store, (table, row[0]))
            connection.commit()
            after, batches = row[0], batches + 1


def frame_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Read a page, compute with polars, COPY it into a temporary table and update from it; a commit a batch."""
    page = f"select id, price from {table} where id > %s order by id limit %s for no key update"
    change = f"update {table} t set band = s.band from stage s where t.id = s.id and t.band is distinct from s.band"
    after, batches = 0, 0
    with psycopg.connect(dsn) as connection:
        connection.execute("create temporary table stage (id bigint, band text) on commit delete rows")
        connection.commit()
        while True:
            rows = connection.cursor(binary=True).execute(page, (after, batch_rows)).fetchall()
            if not rows:
                connection.commit()
                return batches
            frame = pl.DataFrame(rows, schema={"id": pl.Int64, "price": pl.Decimal(10, 2)}, orient="row")
            copied = io.BytesIO()
            bands(frame).write_csv(copied, include_header=False)
            with connection.cursor() as cursor, cursor.copy("copy stage from stdin (format csv)") as copy:
                copy.write(copied.getvalue())
            connection.execute(change)
            connection.commit()
            after, batches = rows[-1][0], batches + 1


def delete_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Walk the index with the place carried along and delete by key, a commit a batch, no checkpoint.

    It locks what it deletes first, passing over rows locked by others, and never comes back for these.
    """
    statement = f"""
        with page as materialized (
            select created_at, id from {table}
             where (created_at, id) > (%(after)s, %(key)s) and created_at < now() - interval '90 days'
             order by created_at, id limit %(rows)s for update skip locked
        ), gone as (
            delete from {table} t using page p where t.id = p.id
        ) select created_at, id from page order by created_at desc, id desc limit 1"""
    after: Any = "-infinity"
    key, batches = 0, 0
    with psycopg.connect(dsn) as connection:
        while True:
            row = connection.execute(statement, {"after": after, "key": key, "rows": batch_rows}).fetchone()
            connection.commit()
            if row is None:
                return batches
            (after, key), batches = row, batches + 1


def delete_range_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Find where the next page ends, then delete up to there, waiting for rows locked by others."""
    due = "created_at < now() - interval '90 days'"
    place = "(%(after)s::timestamptz, %(key)s::bigint)"
    find = f"""select created_at, id from {table} where (created_at, id) > {place} and {due}
                order by created_at, id offset {batch_rows - 1} limit 1"""
    rest = f"""select created_at, id from {table} where (created_at, id) > {place} and {due}
                order by created_at desc, id desc limit 1"""
    delete = f"""delete from {table} where (created_at, id) > {place}
                    and (created_at, id) <= (%(to)s::timestamptz, %(last)s::bigint)"""
    at: dict[str, Any] = {"after": "-infinity", "key": 0}
    batches = 0
    with psycopg.connect(dsn) as connection:
        while True:
            row = connection.execute(find, at).fetchone() or connection.execute(rest, at).fetchone()
            if row is None:
                return batches
            connection.execute(delete, {**at, "to": row[0], "last": row[1]})
            connection.commit()
            at, batches = {"after": row[0], "key": row[1]}, batches + 1


def delete_address_loop(dsn: str, table: str, batch_rows: int) -> int:
    """Walk a page and delete it by its rows' physical addresses in one statement, waiting for locked rows."""
    statement = f"""
        with page as materialized (
            select ctid as address, created_at, id from {table}
             where (created_at, id) > (%(after)s, %(key)s) and created_at < now() - interval '90 days'
             order by created_at, id limit %(rows)s
        ), gone as (
            delete from {table} where ctid = any (array(select address from page))
        ) select created_at, id from page order by created_at desc, id desc limit 1"""
    after: Any = "-infinity"
    key, batches = 0, 0
    with psycopg.connect(dsn) as connection:
        while True:
            row = connection.execute(statement, {"after": after, "key": key, "rows": batch_rows}).fetchone()
            connection.commit()
            if row is None:
                return batches
            (after, key), batches = row, batches + 1


def bands(frame: pl.DataFrame) -> pl.DataFrame:
    """Band a page of orders by price: the handler of both sides."""
    price = pl.col("price")
    return frame.select(
        "id",
        band=pl.when(price < 10).then(pl.lit("low")).when(price < 100).then(pl.lit("mid")).otherwise(pl.lit("high")),
    )
