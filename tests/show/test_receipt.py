"""A receipt's page says first what it proves, then the figures, and escapes whatever the application wrote."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rowsweep.show.html.receipt import receipt_html
from rowsweep.sweeps.late.receipts.receipt import Receipt

RECEIPT = Receipt(
    run_id="0190",
    name="<b>totals</b>",
    status="done",
    table="public.orders",
    where="note <> '<i>'",
    rows=1_234_567,
    matching=12,
    due=0,
    rejected=0,
    covered=((None, ("5", "a<b")), (("5", "a<b"), None)),
    writers=0,
    snapshot="10:12:11",
    at=datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC),
)


@pytest.mark.parametrize(
    ("change", "words", "due"),
    [
        ({}, "complete", "0"),
        ({"due": 3}, "not complete", "3"),
        ({"writers": 2}, "not complete", "0"),
        ({"due": None}, "cannot be told", "cannot be told"),
    ],
)
def test_it_says_what_is_proved(change: dict[str, object], words: str, due: str) -> None:
    """N-057: in words, not only by a colour."""
    page = receipt_html(replace(RECEIPT, **change))  # type: ignore[arg-type]
    assert f"</span> {words}</span>" in page
    assert f'<td><div class="rs-value">{due}</div></td>' in page
    assert "2026-03-01 12:30:05 UTC" in page


def test_what_the_application_wrote_is_escaped() -> None:
    """N-104: a name, a condition and a key are text."""
    page = receipt_html(RECEIPT)
    assert "&lt;b&gt;totals&lt;/b&gt;" in page
    assert "note &lt;&gt; &#x27;&lt;i&gt;&#x27;" in page
    assert "first … (5, a&lt;b); (5, a&lt;b) … last" in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_many_ranges_are_cut_and_no_condition_is_every_row() -> None:
    """N-057: a table of shards fits on a page."""
    page = receipt_html(replace(RECEIPT, where=None, covered=tuple((None, (str(at),)) for at in range(20))))
    assert "and 4 more" in page
    assert "every row" in page
    assert ">none<" in receipt_html(replace(RECEIPT, covered=()))
