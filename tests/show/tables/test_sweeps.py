"""Tables of runs, sweeps and jobs."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from rowsweep.show.tables import sweeps as tables
from rowsweep.show.tables.table import Cell, Column, Table
from tests.show.snapshots import drawn, snapshot

RUNS = [snapshot(), snapshot(name="n" * 120), snapshot(status="done", words="done", percent=100.0, total_is="exact")]


@pytest.mark.parametrize("width", [20, 50, 80, 100, 250])
def test_a_table_keeps_within_the_terminal(width: int) -> None:
    lines = drawn(tables.ledger_table(RUNS).in_terminal(), width)
    assert len(lines) == 1 + len(RUNS)
    assert all(cell_len(line) <= width for line in lines)


def test_a_narrow_terminal_leaves_out_what_matters_least() -> None:
    titles = drawn(tables.ledger_table(RUNS).in_terminal(), 50)[0].split()
    assert titles == ["sweep", "state", "rows"]


def test_a_terminal_shows_a_prefix_that_names_the_run_and_a_pipe_the_whole_id() -> None:
    table = tables.ledger_table([snapshot()])
    assert drawn(table.in_terminal())[1].startswith("01998f0a-1b2c-7d3e  order-totals")
    assert table.as_plain().splitlines()[1].startswith("01998f0a-1b2c-7d3e-8f40-123456789abc  order-totals")


def test_a_pipe_gets_every_column_whole() -> None:
    plain = tables.ledger_table(RUNS).as_plain()
    assert "n" * 120 in plain
    assert "user:ann@host" in plain


def test_columns_line_up_whatever_the_width_of_their_characters() -> None:
    table = Table(
        columns=(Column(title="name"), Column(title="n", is_number=True)),
        rows=((Cell(text="表表"), Cell(text="7")), (Cell(text="abc"), Cell(text="12"))),
    )
    assert table.as_plain() == "name   n\n表表   7\nabc   12"


@pytest.mark.parametrize("show", [lambda table: table.as_plain(), lambda table: table.as_html()])
def test_values_are_escaped(show: object) -> None:
    """N-104."""
    table = Table(columns=(Column(title="name"),), rows=((Cell(text="<i>\x1b[0m"),),))
    shown = show(table)  # type: ignore[operator]
    assert "\x1b" not in shown
    assert "\\x1b[0m" in shown


def test_html_spells_markup_out() -> None:
    """N-104."""
    table = Table(columns=(Column(title="<th>"),), rows=((Cell(text="<i>"),),))
    assert "<i>" not in table.as_html()
    assert "&lt;th&gt;" in table.as_html()


def test_no_rows_are_said_in_a_sentence() -> None:
    empty = tables.sweeps_table([])
    assert empty.as_plain() == "No sweep is declared here. Make one: rowsweep new backfill <name>"
    assert drawn(empty.in_terminal())[0].startswith("No sweep is declared here.")
    assert empty.as_html().startswith("<p>")


def test_a_declared_sweep_is_shown_with_its_last_run() -> None:
    entry = {"name": "order-totals", "kind": "backfill", "state": "live", "table": "orders", "last": snapshot()}
    pending = {"name": "bands", "kind": "backfill", "state": "pending", "table": "orders", "last": None}
    lines = tables.sweeps_table([entry, pending]).as_plain().splitlines()
    assert lines[1].split("  ")[0] == "order-totals"
    assert "running ≈ 41 %" in lines[1]
    assert lines[2].split() == ["bands", "pending", "orders"]


def test_a_missing_value_of_a_frame_shows_as_nothing() -> None:
    shown = tables.frame_table(["id", "total"], [[1, None], [20, "9.50"]], [True, False]).as_plain()
    assert shown == "id  total\n 1\n20  9.50"
