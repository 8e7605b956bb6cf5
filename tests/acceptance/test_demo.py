"""`rowsweep demo`, end to end: real processes, one of them killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from rowsweep import embedded
from rowsweep.cli.demo import orders
from rowsweep.cli.loading import load_app
from rowsweep.jobs.registry import reset_jobs
from tests.cli.command_line import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

HERE = Path(__file__).parents[2]
ROWS = 60_000


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rowsweep.cli", "demo", "--rows", str(ROWS), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=dict(os.environ),
    )


@pytest.mark.slow
def test_the_demo_kills_its_worker_goes_on_and_proves_every_row(tmp_path: Path) -> None:
    """N-110, D-40: on the embedded server of an empty folder, as somebody who has just installed it."""
    process = start(tmp_path)
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, out + err
    assert "with SIGKILL at" in out
    # Which words depends on how long the next process took to start: its lease may have lapsed by then.
    assert re.search("its lease lapses in |the lease of the worker that held it ", out)
    assert "order-totals: done  100 %  60,000 rows" in out
    assert "Every row was written exactly once" in out
    assert "$ rowsweep ledger --name order-totals" in out
    assert "\x1b" not in out
    assert embedded.start(tmp_path / ".rowsweep").started_by_us, "the demo left its server running"


def test_the_demo_leaves_each_row_written_once_and_says_so_in_one_document(tmp_path: Path, dsn: str) -> None:
    """N-106; over a given database, whose rows are counted here once more."""
    process = start(tmp_path, "--json", "--dsn", dsn)
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    said = json.loads(out)
    assert said["is_proved"] is True
    assert 40 <= said["killed"]["percent"] < 100
    assert [run["status"] for run in said["ledger"]] == ["done"]
    with psycopg.connect(dsn) as connection:
        counted = connection.execute("select count(*), min(writes), max(writes), count(total) from orders").fetchone()
    assert counted == (ROWS, 1, 1, ROWS)


def test_a_stopped_demo_leaves_a_sweep_that_can_go_on(tmp_path: Path, dsn: str) -> None:
    """N-004."""
    process = start(tmp_path, "--dsn", dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        wait_until(lambda: _rows_swept(connection))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 143
        assert "Go on with its sweep: rowsweep run order-totals" in err
        assert connection.execute("select status from x_backfills").fetchone() == ("running",)


def test_a_table_that_is_not_the_demos_is_not_touched(tmp_path: Path, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table orders (id integer)")
        process = start(tmp_path, "--dsn", dsn)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "a table orders that is not the demo's" in err
        assert connection.execute("select count(*) from orders").fetchone() == (0,)


def test_a_proof_fails_where_a_row_was_written_twice_or_not_at_all() -> None:
    assert orders.Proof(rows=3, written_once=3, wrong=0, total="1").holds_for(3)
    assert not orders.Proof(rows=3, written_once=2, wrong=0, total="1").holds_for(3)
    assert not orders.Proof(rows=3, written_once=3, wrong=1, total="1").holds_for(3)
    assert not orders.Proof(rows=2, written_once=2, wrong=0, total="1").holds_for(3)


def test_the_repositorys_backfills_are_the_ones_that_are_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN §2's three sweeps are there to be read in `backfills/`, and to be run by who installed a wheel."""
    monkeypatch.chdir(HERE)
    reset_jobs()
    assert [name for name in load_app() if name.startswith("backfills.")] == [
        "backfills.index_orders",
        "backfills.order_bands",
        "backfills.order_totals",
    ]
    shipped = HERE / "src" / "rowsweep" / "cli" / "demo" / "backfills"
    for file in (HERE / "backfills").glob("*.py"):
        assert file.read_bytes() == (shipped / file.name).read_bytes()
    reset_jobs()


def _rows_swept(connection: psycopg.Connection) -> bool:
    if connection.execute("select to_regclass('x_backfills')").fetchone() == (None,):
        return False
    found = connection.execute("select rows from x_backfills").fetchone()
    return found is not None and found[0] > 0
