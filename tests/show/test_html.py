"""A run as HTML: its parts, its chart, and what is read where styles are not."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowsweep.show.html import run as page
from rowsweep.show.html.chart import chart, peak_words, rates
from rowsweep.show.html.figures import rate_now, run_figures
from rowsweep.show.html.style import STYLE
from tests.show.snapshots import snapshot

STEADY = tuple((float(second), 1_000 * second) for second in range(1, 11))
NASTY = '"><script>alert(1)</script><b onload="x">&'


class Tags(HTMLParser):
    """Collect the tags and attributes of a page, and its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_what_a_page_without_styles_shows_is_readable() -> None:
    """N-103: as GitHub shows a saved notebook, which strips every style."""
    text = " ".join(Tags(page.snapshot_html(snapshot()).replace(STYLE, "")).text.split())
    for words in ("order-totals", "running", "≈ 41 %", "823,000", "of ≈ 2,000,000", "96.4 k/s", "12 s", "2,073 rows"):
        assert words in text


def test_a_picture_of_an_open_run_says_of_when_it_is_and_how_to_go_on_watching() -> None:
    """N-103."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    shown = page.snapshot_html(snapshot(), at=at)
    assert "As of 2026-01-02 03:04:05 UTC." in shown
    assert "rs.attach(&quot;01998f0a-1b2c-7d3e-8f40-123456789abc&quot;)" in shown
    assert "As of" not in page.snapshot_html(snapshot(status="done", words="done"))


@pytest.mark.parametrize("field", ["name", "words", "waiting_for", "last_error", "launched_by", "environment"])
def test_no_value_of_a_run_becomes_markup(field: str) -> None:
    """N-104."""
    shown = Tags(page.snapshot_html(snapshot(status="failed", **{field: NASTY}), mark=NASTY, at=None))
    assert not {"script", "b"} & set(shown.tags)
    assert not [name for name, _ in shown.attributes if name.startswith("on")]


@pytest.mark.parametrize(
    ("words", "status", "mark"),
    [("running", "running", "●"), ("paused", "paused", "❚❚"), ("failed", "failed", "✕"), ("done", "done", "✓"),
     ("cancelled", "cancelled", "■"), ("stalled", "running", "!"), ("retrying at 03:04 UTC", "running", "○")],
)  # fmt: skip
def test_every_state_has_its_words_and_a_mark_besides_its_colour(words: str, status: str, mark: str) -> None:
    """Colour is never the only sign, and the mark is not read out."""
    shown = page.head(snapshot(words=words, status=status))
    assert f'aria-hidden="true" style="color:var(--rs-{_tone(words)})">{mark}</span> {words}' in shown
    assert 'role="status"' in shown


def _tone(words: str) -> str:
    return {"running": "busy", "failed": "bad", "stalled": "bad", "done": "good"}.get(words, "warn")


def test_the_bar_tells_a_screen_reader_the_same() -> None:
    shown = page.bar(snapshot())
    assert 'role="progressbar" aria-label="Progress of order-totals"' in shown
    assert 'aria-valuenow="41" aria-valuetext="≈ 41 %"' in shown
    assert "width:41.15%" in shown


def test_the_bar_never_passes_its_end() -> None:
    """N-075."""
    assert "width:100.00%" in page.bar(snapshot(percent=250.0))


def test_a_bar_of_unknown_total_moves_only_while_work_is_being_done() -> None:
    """N-075."""
    unknown = {"percent": None, "total": None, "total_is": "unknown"}
    assert "rs-seeking" in page.bar(snapshot(**unknown))
    paused = page.bar(snapshot(**unknown, status="paused", words="paused"))
    assert "rs-seeking" not in paused
    assert 'aria-valuetext="total unknown"' in paused


def test_an_open_run_keeps_its_titles_in_every_state() -> None:
    """Nothing jumps while numbers change."""
    launched = snapshot(rows=0, batches=0, rows_per_second=None, eta_seconds=None, batch_rows=None, batch_ms=None)
    states = [launched, snapshot(), snapshot(words="paused", status="paused"), snapshot(rejected_rows=7, attempt=4)]
    titles = {tuple(figure.title for figure in run_figures(state)) for state in states}
    assert titles == {("Rows", "Rate", "Time left", "Batch", "Written")}
    assert run_figures(states[-1])[-1].more == "attempt 4 of 20, 7 set aside"


def test_the_rate_now_is_of_the_last_seconds() -> None:
    slowed = snapshot(samples=STEADY, rows=10_500, active_seconds=15.0)
    assert rate_now(slowed) == 100.0
    assert rate_now(snapshot(samples=())) is None
    assert rate_now(snapshot(samples=((8.4, 1),))) is None


def test_a_wait_for_the_next_attempt_says_how_long_it_is() -> None:
    """N-074."""
    assert "trying again in 12 s; " in page.says(snapshot(last_error="no"), retry_in=12.2)
    assert page.says(snapshot()) == '<div class="rs-says"></div>'


def test_a_long_error_is_cut_where_it_is_said_and_whole_where_it_is_folded() -> None:
    failed = snapshot(status="failed", words="failed", last_error="x" * 900 + "\nend")
    assert "x" * 240 not in page.says(failed)
    assert "x" * 900 + "\nend</pre>" in page.more(failed)
    assert "last error" not in page.more(snapshot())


def test_the_chart_is_drawn_and_said() -> None:
    """N-103."""
    shown = chart(snapshot(samples=STEADY, rows=10_000, active_seconds=10.0))
    assert 'role="img" aria-label="Rows a second along the run: 1 k/s last, between 1 k/s and 1 k/s"' in shown
    assert peak_words(snapshot(samples=STEADY, rows=10_000, active_seconds=10.0)).endswith("1 k/s at most")
    empty = chart(snapshot(samples=(), active_seconds=0.1))
    assert "<path" not in empty
    assert 'class="rs-chart"' in empty


def test_a_chart_of_the_most_samples_is_coarse_and_a_single_batch_is_no_peak() -> None:
    """N-077."""
    many = tuple((second / 2, 50 * second) for second in range(1, 241))
    assert len(rates(snapshot(samples=many, rows=12_000, active_seconds=120.0))) <= 81
    first = snapshot(samples=((0.01, 1_000), *STEADY), rows=10_000, active_seconds=10.0)
    assert max(rate for _, rate in rates(first)) == 1_000


@given(
    st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 10**7)), max_size=240),
    st.floats(0, 3),
)
def test_a_chart_of_any_samples_is_bounded_and_inside_its_frame(steps: list[tuple[float, int]], more: float) -> None:
    """N-077: at most 240 samples, however close or far apart."""
    at, rows, samples = 0.0, 0, []
    for seconds, done in steps:
        at, rows = at + seconds, rows + done
        samples.append((at, rows))
    taken = snapshot(samples=tuple(samples), active_seconds=at + more, rows=rows + 1)
    assert len(rates(taken)) <= 81
    assert all(rate >= 0 for _, rate in rates(taken))
    for x, y in re.findall(r"([\d.]+),([\d.]+)", chart(taken).partition("<path")[2]):
        assert 0 <= float(x) <= 600
        assert 0 <= float(y) <= 60
