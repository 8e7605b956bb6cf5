"""An application's own connection: the psycopg connection inside it, and its transactions in its library's own way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg.pq import TransactionStatus

from rowsweep.errors import InvalidOption, TransactionRequired

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def held_by(tx: Any) -> psycopg.Connection[Any]:
    """Answer the psycopg connection that psycopg, SQLAlchemy (connection or session) or Django holds; InvalidOption."""
    holder = tx
    while holder is not None and not isinstance(holder, psycopg.Connection):
        holder = _inside(holder)
    if holder is not None:
        return _decoding(holder)
    raise InvalidOption(
        f"tx is of the type {type(tx).__name__}, which holds no psycopg 3 connection that could be joined: "
        f"{'an enqueue is synchronous' if isinstance(tx, psycopg.AsyncConnection) else 'there is no transaction'}.",
        fix="tx=connection, where connection is psycopg.connect(…), or SQLAlchemy or Django over psycopg 3",
        meta={"option": "tx", "got": type(tx).__name__},
    )


def joinable(tx: Any) -> psycopg.Connection[Any]:
    """Answer the connection, of which the caller ends the transaction; TransactionRequired where it commits by itself.

    SQLAlchemy begins with its own first statement, and would end nothing that began without it.
    """
    if hasattr(tx, "exec_driver_sql") and not tx.in_transaction():
        tx.exec_driver_sql("select 1")
    connection = held_by(tx)
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise TransactionRequired(
            "tx is in autocommit mode and has no transaction open: the job would not wait for the caller's commit.",
            fix="with connection.transaction() (psycopg), with engine.begin() (SQLAlchemy), transaction.atomic() "
            "(Django), or with rs.transaction(connection):",
            meta={"option": "tx"},
        )
    return connection


def begun(tx: Any) -> AbstractContextManager[Any]:
    """Open a transaction the way the connection's own library does: where one is open already, a savepoint in it.

    Nothing is looked into before: a session begins a transaction of its own when it is asked for its connection.
    """
    if isinstance(tx, psycopg.Connection):
        return tx.transaction()
    if hasattr(tx, "begin_nested"):
        return cast("AbstractContextManager[Any]", tx.begin_nested() if tx.in_transaction() else tx.begin())
    if hasattr(tx, "in_atomic_block"):
        atomic = import_module("django.db.transaction").atomic
        return cast("AbstractContextManager[Any]", atomic(using=tx.alias))
    return held_by(tx).transaction()


def _decoding(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Refuse a connection whose texts come as bytes, as psycopg has it where the encoding is none."""
    if connection.info.parameter_status("client_encoding") == "SQL_ASCII":
        raise InvalidOption(
            "the connection's client_encoding is SQL_ASCII: it says nothing of what a text's bytes mean.",
            fix="client_encoding=utf8 in its DSN, or connection.execute(\"set client_encoding = 'UTF8'\")",
            meta={"option": "tx"},
        )
    return connection


def _inside(holder: Any) -> Any:
    """Answer what a connection of a library's own holds, None where it holds nothing."""
    if hasattr(holder, "driver_connection"):
        return holder.driver_connection
    if hasattr(holder, "ensure_connection"):
        holder.ensure_connection()
    inner = getattr(holder, "connection", None)
    inner = inner() if callable(inner) else inner
    return None if inner is holder else inner
