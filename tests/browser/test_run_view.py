"""A sweep in JupyterLab, from its launch to its end, through everything that may come between."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import psycopg
import pytest
from playwright.sync_api import Locator, Page, expect

from rowsweep.queue.postgres.install import install
from tests.browser.lab import PATIENCE, Lab, Notebook, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(420)]

ROWS = 40_000
LONG = 1000 * PATIENCE
CONNECT = "import rowsweep as rs\nimport polars as pl\napp = rs.connect({dsn!r})"
SWEEP = """
totals = rs.backfill("{name}", rows=rs.Rows("orders"), set={{"total": "price * qty"}},
                     rate="{rate}", batch_rows=200, adapt=False)
run = totals.launch(force=True)
run
"""


class Database:
    """The database under the notebook, asked from outside."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def one(self, statement: str, *values: object) -> Any:
        row = self._connection.execute(statement.encode(), values).fetchone()
        return None if row is None else row[0]

    def status(self, name: str) -> str:
        newest = "select status from x_backfills where name = %s order by started_at desc limit 1"
        return cast("str", self.one(newest, name))

    def rows(self, name: str) -> int:
        newest = "select rows from x_backfills where name = %s order by started_at desc limit 1"
        return cast("int", self.one(newest, name))


@pytest.fixture
def database(dsn: str, connection: psycopg.Connection) -> Database:
    """Orders to sweep."""
    install(dsn, None)
    connection.execute(
        "create table orders (id bigint primary key, price int, qty int, total int, swept int not null default 0)"
    )
    fill = "insert into orders (id, price, qty) select i, i %% 90, 1 + i %% 9 from generate_series(1, %s) i"
    connection.execute(fill, [ROWS])
    connection.execute(
        "create function counted() returns trigger language plpgsql as "
        "$$begin new.swept := old.swept + 1; return new; end$$"
    )
    connection.execute("create trigger counted before update on orders for each row execute function counted()")
    return Database(connection)


def live(outputs: Locator) -> Locator:
    return outputs.locator(".rowsweep-live")


def share(view: Locator) -> int:
    return int(view.get_by_role("progressbar").get_attribute("aria-valuenow") or -1)


def moves(view: Locator) -> None:
    """See the bar move."""
    before = share(view)
    until(lambda: share(view) > before, "the bar moves")


def says(view: Locator, words: str) -> None:
    expect(view.get_by_role("status").first).to_contain_text(words, timeout=LONG)


def opened(lab: Lab, page: Page, name: str, cells: list[str]) -> Notebook:
    lab.write(name, cells)
    return lab.open(page, name)


def test_a_sweep_is_watched_paused_resumed_and_finished_through_a_reload_and_a_dead_kernel(
    lab: Lab, page: Page, database: Database, dsn: str
) -> None:
    """N-072, N-079, N-080, N-102, N-103: what the ledger says is what the page says, and every row is written once."""
    # It would take longer than all that comes before its kernel dies, however slow a browser is.
    sweep, attached_to = SWEEP.format(name="order-totals", rate="300/s"), "rs.attach('order-totals')"
    cells = [CONNECT.format(dsn=dsn), sweep, attached_to, f"{attached_to}.tune(rate='none')"]
    notebook = opened(lab, page, "sweep.ipynb", cells)
    notebook.run(0)
    view = live(notebook.run(1))
    says(view, "running")
    moves(view)

    view.get_by_role("button", name="Pause").click()
    says(view, "paused")
    assert database.status("order-totals") == "paused"
    stopped_at = database.rows("order-totals")
    assert 0 < stopped_at < ROWS
    assert database.one("select count(*) from orders where swept = 1") == stopped_at

    view.get_by_role("button", name="Resume").click()
    says(view, "running")
    until(lambda: database.rows("order-totals") > stopped_at, "the sweep goes on")
    moves(view)

    notebook.save()
    page.reload()
    notebook = Notebook(page)
    view = live(notebook.cell(1))
    says(view, "running")
    moves(view)

    notebook.restart()
    assert database.status("order-totals") == "running"
    notebook.run(0)
    notebook.run(1)
    attached = live(notebook.run(2))
    moves(attached)
    notebook.run(3)
    view = notebook.cell(2)
    says(view, "done")
    expect(view.get_by_role("button", name="Pause")).to_have_count(0)
    assert database.status("order-totals") == "done"
    assert database.one("select count(*) from orders where swept = 1 and total = price * qty") == ROWS


def test_a_sweep_is_steered_while_the_kernel_waits_and_survives_its_interruption(
    lab: Lab, page: Page, database: Database, dsn: str
) -> None:
    """N-078, N-081, N-103, N-122: the stop button detaches and says so; cancelling asks once more."""
    cells = [CONNECT.format(dsn=dsn), SWEEP.format(name="slow", rate="400/s"), "run.wait()", "1 + 1"]
    notebook = opened(lab, page, "steer.ipynb", cells)
    notebook.run(0)
    view = live(notebook.run(1))
    moves(view)

    waiting = notebook.start(2)
    view.get_by_role("button", name="Pause").click()
    says(view, "paused")
    view.get_by_role("button", name="Resume").click()
    says(view, "running")
    view.get_by_label("At most").fill("300/s")
    view.get_by_role("button", name="Set").click()
    expect(view.get_by_text("at most 300/s").first).to_be_visible(timeout=LONG)

    notebook.interrupt()
    expect(waiting).to_contain_text("Stopped waiting; 'slow' goes on: rs.attach(", timeout=LONG)
    notebook.is_over(2)
    expect(notebook.run(3)).to_contain_text("2")
    assert database.status("slow") == "running"
    moves(view)

    view.get_by_role("button", name="Cancel …").click()
    view.get_by_role("button", name="Keep it going").click()
    assert database.status("slow") == "running"
    view.get_by_role("button", name="Cancel …").click()
    view.get_by_role("button", name="Cancel the run").click()
    says(view, "cancelled")
    assert database.status("slow") == "cancelled"
    assert database.one("select count(*) from orders where swept = 1") == database.rows("slow") < ROWS


def test_a_view_whose_output_is_gone_is_asked_for_no_longer(lab: Lab, page: Page, database: Database, dsn: str) -> None:
    """N-103: a cell that is run again leaves one view, a cleared output none."""
    count = "print(len(app.poller()._watchers), 'watched')"
    cells = [CONNECT.format(dsn=dsn), SWEEP.format(name="again", rate="200/s"), count]
    notebook = opened(lab, page, "again.ipynb", cells)

    def are_watched(views: int) -> None:
        until(lambda: f"{views} watched" in notebook.run(2).inner_text(), f"{views} views are watched")

    notebook.run(0)
    for _ in range(3):
        moves(live(notebook.run(1)))
    are_watched(1)
    notebook.clear(1)
    are_watched(0)
    assert database.status("again") == "running"


def test_the_board_opens_the_view_of_a_sweep_which_steers_it(
    lab: Lab, page: Page, database: Database, dsn: str
) -> None:
    """N-079, N-103: everything at a glance, and each sweep a click away."""
    cells = [CONNECT.format(dsn=dsn), SWEEP.format(name="on-board", rate="400/s") + "None", "rs.board()"]
    notebook = opened(lab, page, "board.ipynb", cells)
    notebook.run(0)
    notebook.run(1)
    board = live(notebook.run(2)).first
    expect(board.get_by_text("on-board").first).to_be_visible(timeout=LONG)
    for title in ("Jobs", "Workers"):
        expect(board.get_by_label(title)).to_be_visible()
    board.get_by_role("button", name="Open").click()
    moves(board)
    board.get_by_role("button", name="Pause").click()
    says(board, "paused")
    assert database.status("on-board") == "paused"
    board.get_by_role("button", name="Close").click()
    expect(board.get_by_role("progressbar")).to_have_count(0)
    expect(board.locator(".rs-row").get_by_text("paused")).to_be_visible(timeout=LONG)


def test_a_saved_notebook_shows_the_last_state_without_a_kernel(
    lab: Lab, page: Page, database: Database, dsn: str
) -> None:
    """N-103: in JupyterLab, and as nbconvert writes it; no error stands in for the widgets that are gone."""
    notebook = opened(lab, page, "saved.ipynb", [CONNECT.format(dsn=dsn), SWEEP.format(name="kept", rate="2000/s")])
    notebook.run(0)
    view = live(notebook.run(1))
    moves(view)
    picture = notebook.cell(1).locator(".rowsweep[class*='rowsweep-']")
    expect(picture).to_be_hidden()
    view.get_by_role("button", name="Pause").click()
    says(view, "paused")
    expect(picture).to_contain_text("paused", timeout=LONG)
    notebook.save()
    notebook.restart()
    page.reload()
    notebook = Notebook(page)

    expect(picture).to_be_visible(timeout=LONG)
    expect(picture).to_contain_text("paused")
    expect(picture).to_contain_text('rs.attach("')
    expect(page.get_by_text("Error displaying widget")).to_be_hidden()
    html = subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "html", "--stdout", str(lab.folder / "saved.ipynb")],
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    page.set_content(html)
    expect(page.locator(".rowsweep").first).to_contain_text("kept")
    expect(page.locator(".rowsweep").first).to_contain_text("paused")
