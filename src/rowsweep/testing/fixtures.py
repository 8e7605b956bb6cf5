"""Fixtures for pytest: `pytest_plugins = ["rowsweep.testing.fixtures"]` in a conftest.py makes them known."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rowsweep.app.app import App


@pytest.fixture
def rowsweep_memory() -> Iterator[App]:
    """An app over a memory driver of the test's own, connected for the test; nothing is worked by itself.

    What the test declares is forgotten afterwards. It has no tables: use `rowsweep_postgres` for sweeps.
    """
    import rowsweep

    app = rowsweep.connect(driver=rowsweep.MemoryDriver(), work=False)
    with _declarations_kept():
        yield app
    app.close()


@pytest.fixture(scope="session")
def rowsweep_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DSN of an embedded Postgres for this session of tests."""
    from rowsweep import embedded

    server = embedded.start(tmp_path_factory.mktemp("rowsweep"))
    yield server.dsn
    server.leave()


@pytest.fixture
def rowsweep_postgres(rowsweep_server: str) -> Iterator[App]:
    """An app over a fresh schema of the embedded Postgres, connected for the test; nothing is worked by itself.

    The schema is the one that unqualified names lead to, for rowsweep's tables and the test's own alike. It is dropped
    afterwards, and what the test declared is forgotten. `app.transaction()` lends a connection to make tables with.
    """
    import rowsweep

    schema = f"test_{secrets.token_hex(6)}"
    _execute(rowsweep_server, f"create schema {schema}")
    app = rowsweep.connect(_in_schema(rowsweep_server, schema), work=False)
    try:
        app.install()
        with _declarations_kept():
            yield app
    finally:
        app.close()
        _execute(rowsweep_server, f"drop schema {schema} cascade")


@contextmanager
def _declarations_kept() -> Iterator[None]:
    """Leave the registries as they were before the block."""
    from rowsweep.jobs.registry import register, registered_jobs, reset_jobs
    from rowsweep.jobs.tasks.registry import register_tasks, registered_tasks, reset_tasks

    jobs, tasks = registered_jobs(), registered_tasks()
    yield
    reset_jobs()
    reset_tasks()
    for job in jobs:
        register(job)
    register_tasks({task.name: task for task in tasks})


def _execute(dsn: str, statement: str) -> None:
    from rowsweep import PostgresDriver

    driver = PostgresDriver(dsn)
    try:
        with driver.transaction() as opened:
            opened.connection.execute(statement)
    finally:
        driver.close()


def _in_schema(dsn: str, schema: str) -> str:
    """Make a schema the one that a DSN's sessions look in."""
    separator = "&" if "?" in dsn else "?"
    return f"{dsn}{separator}options=-csearch_path%3D{schema}"
