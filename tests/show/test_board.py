"""A board in a terminal, as text, in one line and as a page."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from rowsweep.show.board.views import BoardInTerminal, board_bundle, board_line, board_text
from tests.show.boards import board
from tests.show.snapshots import drawn, snapshot

EMPTY = {"runs": (), "queues": (), "workers": (), "dead": (), "pauses": (), "schedules": ()}


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_a_board_keeps_within_the_terminal(width: int) -> None:
    lines = drawn(BoardInTerminal(board(), note="Ctrl-C leaves"), width)
    assert all(cell_len(line) <= width for line in lines)
    assert {"Sweeps", "Jobs", "Workers", "Paused", "Dead letters", "Schedules"} <= {line.strip() for line in lines}


def test_a_pipe_gets_one_plain_line() -> None:
    line = board_line(board())
    assert line.isprintable()
    assert line.startswith("2026-01-02 03:04:05 UTC  sweeps at work 1  jobs running 4  due 117")
    assert line.endswith("dead 2  workers 1  order-totals ≈ 41 %")


def test_the_line_stays_short_however_much_is_at_work() -> None:
    """N-106: a pipe is read by people too."""
    runs = tuple(snapshot(run_id=str(number), name=f"backfill-{number}-{'x' * 90}") for number in range(20))
    line = board_line(board(runs=runs))
    assert line.endswith("  and 17 more")
    assert cell_len(line) < 240
    assert board_line(board(**EMPTY)).endswith("UTC  sweeps at work 0  workers 0")


def test_text_has_everything() -> None:
    text = board_text(board())
    for part in ("shop on localhost", "order-totals", "117", "box:7", "user:ann", "no <i>luck</i>", "hourly", "never"):
        assert part in text


def test_a_socket_s_folder_is_written_as_people_do() -> None:
    at = board(place="postgresql://me@/shop?host=%2Fvar%2Frun&port=5432")
    assert board_text(at).startswith("postgresql://me@/shop?host=/var/run&port=5432  2026-01-02")


def test_an_empty_board_says_what_there_is_not() -> None:
    text = board_text(board(**EMPTY))
    assert "No sweep has run here yet." in text
    assert "No worker lives." in text
    assert "Dead letters" not in text


def test_the_bundle_has_text_and_escaped_html() -> None:
    """N-102, N-104."""
    bundle = board_bundle(board(), mark="m", note="")
    assert bundle["text/plain"]
    for markup in ("<b>", "<i>"):
        assert markup not in bundle["text/html"]
    assert 'aria-label="Dead letters"' in bundle["text/html"]


def test_a_page_has_the_columns_of_wide_tables_that_matter_most() -> None:
    page = board_bundle(board())["text/html"]
    workers = page[page.index('aria-label="Workers"') : page.index('aria-label="Paused"')]
    assert "box:7" in workers
    assert "interrupted" not in workers


def test_a_board_is_json() -> None:
    """S-015."""
    document = board().as_json()
    assert document["queues"][0]["due"] == 117
    assert document["schedules"][0]["next_at"] == "2026-01-02T04:04:05+00:00"
