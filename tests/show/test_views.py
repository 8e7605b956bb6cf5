"""A snapshot in the terminal, as plain text, as HTML and as a display bundle."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from rich.cells import cell_len

from rowsweep import show
from rowsweep.operate.health.finding import Finding, Health
from rowsweep.show.html.run import snapshot_html
from rowsweep.show.html.style import STYLE
from rowsweep.show.plain import snapshot_line, snapshot_text
from rowsweep.show.tables.health import HealthView, health_text
from rowsweep.show.terminal import SweepView, snapshot_details
from rowsweep.sweeps.snapshot import Snapshot
from tests.show.snapshots import AT, drawn, snapshot

NASTY = "a\x1b]0;title\x07<b>[red]{}\n" + "x" * 100
SNAPSHOTS = {
    "running": snapshot(),
    "unknown total": snapshot(total=None, total_is="unknown", percent=None, eta_seconds=None),
    "past the estimate": snapshot(total=823_000, total_is="at least", percent=99.0),
    "done": snapshot(status="done", words="done", rows=2_000_000, total_is="exact", percent=100.0),
    "empty": snapshot(rows=0, batches=0, status="done", words="done", total=0, total_is="exact", percent=100.0),
    "failed": snapshot(status="failed", words="failed", last_error=NASTY, last_error_code="X_TIMEOUT"),
    "long name": snapshot(name="n" * 120),
    "just launched": snapshot(
        rows=0, batches=0, rows_per_second=None, eta_seconds=None, batch_rows=None, batch_ms=None, percent=0.0
    ),
    "nasty": snapshot(name=NASTY, words=NASTY, waiting_for=NASTY, launched_by=NASTY, input={"a": NASTY}),
}


@pytest.mark.parametrize("width", [20, 46, 80, 200])
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_terminal_of_any_width_shows_every_snapshot_within_it(name: str, width: int) -> None:
    lines = drawn(SweepView(SNAPSHOTS[name], note="Ctrl-C pauses it"), width)
    assert all(cell_len(line) <= width for line in lines)
    assert 4 <= len(lines) <= 40


def test_the_terminal_shows_name_state_bar_and_figures() -> None:
    lines = drawn(SweepView(snapshot()))
    assert lines[0].split() == ["order-totals", "running"]
    assert "≈ 41 %" in lines[1]
    assert lines[2] == "823,000 of ≈ 2,000,000 rows   96.4 k/s   batch 2,073 rows in 21 ms   ETA 12 s"


def test_no_figure_is_broken_in_two_where_the_terminal_is_narrow() -> None:
    lines = drawn(SweepView(snapshot()), 40)
    assert lines[2:] == ["823,000 of ≈ 2,000,000 rows   96.4 k/s", "batch 2,073 rows in 21 ms   ETA 12 s"]


def test_an_unknown_total_has_no_percentage_in_any_view() -> None:
    """N-075."""
    unknown = SNAPSHOTS["unknown total"]
    views = ["\n".join(drawn(SweepView(unknown))), snapshot_line(unknown)]
    assert not any("%" in view for view in views)
    page = snapshot_html(unknown)
    assert "rs-share" in snapshot_html(snapshot()).replace(STYLE, "")
    assert "rs-share" not in page.replace(STYLE, "")
    assert "aria-valuenow" not in page


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_is_one_line_for_a_pipe(name: str) -> None:
    line = snapshot_line(SNAPSHOTS[name])
    assert line.isprintable()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_no_control_sequence_of_a_value_reaches_the_terminal(name: str) -> None:
    """N-104."""
    for view in (SweepView(SNAPSHOTS[name]), snapshot_details(SNAPSHOTS[name])):
        text = "\n".join(drawn(view))
        assert "\x1b]0" not in text
        assert "\x07" not in text


def test_markup_of_a_value_is_shown_and_not_obeyed() -> None:
    """N-104."""
    assert "[red]" in "".join(drawn(SweepView(SNAPSHOTS["nasty"])))
    page = snapshot_html(SNAPSHOTS["nasty"])
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_html_is_well_formed(name: str) -> None:
    open_tags: list[str] = []

    class Balanced(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balanced().feed(snapshot_html(SNAPSHOTS[name]))
    assert not open_tags


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_bundle_carries_plain_text(name: str) -> None:
    """N-102."""
    bundle = show.bundle(SNAPSHOTS[name])
    assert bundle["text/plain"]
    assert set(bundle) == {"text/plain", "text/html"}


def test_an_error_in_a_display_is_warned_about_and_raised() -> None:
    """N-102."""
    broken: Snapshot = snapshot(percent="much")
    with pytest.warns(RuntimeWarning, match="cannot show this sweep"), pytest.raises(TypeError):
        show.bundle(broken)


def test_the_details_name_the_run_its_input_and_its_options() -> None:
    text = snapshot_text(snapshot(input={"day": "Mon"}, options={"force": True}, words="paused"))
    assert "run          01998f0a-1b2c-7d3e-8f40-123456789abc" in text
    assert '{"day": "Mon"}' in text
    assert '{"force": true}' in text


def test_health_folds_what_is_long_and_cuts_nothing() -> None:
    """N-104, N-105: a fix must be readable at any width."""
    fix = "rowsweep worker --queue default, or a higher --concurrency " * 3
    findings = (
        Finding(name="connection", level="ok", says="PostgreSQL 18"),
        Finding(name="ready", level="warn", says="late [bold]\x1b[31m", fix=fix.strip()),
    )
    health = Health(place="db", looked_at=AT, findings=findings)
    lines = drawn(HealthView(health), width=50)
    assert max(map(cell_len, lines)) <= 50
    assert " ".join(fix.split()) in " ".join(" ".join(lines).split())
    assert "[bold]" in "".join(lines)
    assert health_text(health).splitlines()[-1] == "db: 0 failing, 1 to look after."
