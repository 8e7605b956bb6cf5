"""Every view of a run shows each of its shards: a bar, its rows and its state."""

from __future__ import annotations

from typing import Any

from rowsweep.show.html.run import snapshot_html
from rowsweep.show.plain import snapshot_line, snapshot_text
from rowsweep.show.tables.sweeps import ledger_table
from rowsweep.show.terminal import SweepView, snapshot_details
from rowsweep.sweeps.shards.shown import ShardSnapshot
from tests.show.snapshots import drawn, snapshot


def shard(number: int, **changed: Any) -> ShardSnapshot:
    fields: dict[str, Any] = {
        "number": number, "status": "running", "rows": 1_234, "written": 1_234, "batches": 3, "percent": 41.0,
        "cursor": ("7",), "after": None, "to": ("900",),
    }  # fmt: skip
    return ShardSnapshot(**{**fields, **changed})


SHARDS = (
    shard(1, status="done", percent=100.0, rows=5_000),
    shard(2, after=("900",), to=("<b>",), percent=60.0),
    shard(3, status="waiting", rows=0, percent=0.0, after=("<b>",), to=None),
)


def test_a_line_says_how_many_are_done() -> None:
    """N-088: one progress view; nothing is said of shards where the run is one job."""
    assert "1 of 3 shards" in snapshot_line(snapshot(shards=SHARDS))
    assert "3 shards" in snapshot_line(snapshot(shards=SHARDS, status="done", words="done"))
    assert "shard" not in snapshot_line(snapshot())


def test_the_details_have_a_line_for_each() -> None:
    """N-088: rows, state and range, in `sweeps show` as in a pipe."""
    lines = {line[:8].strip(): line for line in snapshot_text(snapshot(shards=SHARDS)).splitlines()}
    assert "5,000 rows" in lines["shard 1"]
    assert "done" in lines["shard 1"]
    assert "behind (900) up to (<b>)" in lines["shard 2"]
    assert "behind (<b>) to the end" in lines["shard 3"]
    assert any("shard 2" in line and "1,234 rows" in line for line in drawn(snapshot_details(snapshot(shards=SHARDS))))


def test_a_terminal_draws_a_bar_for_each() -> None:
    """N-088: at any width, and with many shards no more than a screen holds."""
    lines = drawn(SweepView(snapshot(shards=SHARDS)))
    bars = [line for line in lines if line.lstrip().startswith(("1  ", "2  ", "3  "))]
    assert [(bar.count("━"), bar.count("─")) for bar in bars] == [(40, 0), (24, 16), (0, 40)]
    assert all(len(line) <= 30 for line in drawn(SweepView(snapshot(shards=SHARDS)), width=30))
    many = drawn(SweepView(snapshot(shards=tuple(shard(number) for number in range(1, 65)))))
    assert any("and 48 more shards" in line for line in many)


def test_a_page_has_a_bar_for_each_that_can_be_read_out() -> None:
    """N-088: escaped, and said in words beside the bar."""
    html = snapshot_html(snapshot(shards=SHARDS))
    assert html.count('role="progressbar"') == 4
    assert 'aria-label="Progress of shard 2 of order-totals"' in html
    assert 'aria-valuenow="60"' in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "rs-shards" not in snapshot_html(snapshot()).split("</style>")[1]


def test_the_ledger_says_how_many_are_done() -> None:
    """N-088."""
    (row,) = ledger_table([snapshot(shards=SHARDS)]).rows
    assert row[2].text.endswith("1 of 3 shards")
