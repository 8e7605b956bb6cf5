"""Databases and schemas of a test's own, dropped afterwards with all that is in them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from rowsweep.queue.postgres.install import install


@contextmanager
def own_database(server_dsn: str) -> Iterator[str]:
    """Make an empty database; answer its DSN."""
    name = f"own_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield make_conninfo(server_dsn, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def queue_schema(server_dsn: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """Make a schema with the queue's tables; answer its name, and a connection in it that commits each statement."""
    name = f"queue_{secrets.token_hex(6)}"
    with psycopg.connect(dsn_in(server_dsn, name), autocommit=True) as connection:
        install(connection, name)
        try:
            yield name, connection
        finally:
            connection.execute("set client_min_messages = warning")
            connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def dsn_in(server_dsn: str, schema: str) -> str:
    """Answer a DSN whose connections are in a schema."""
    options = str(conninfo_to_dict(server_dsn).get("options") or "")
    return make_conninfo(server_dsn, options=f"{options} -csearch_path={schema}".strip())
