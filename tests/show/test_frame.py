"""A preview side by side."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from rowsweep.show.html.frame import preview_html
from rowsweep.show.tables.sweeps import preview_table, side_by_side
from rowsweep.sweeps.previewed import PreviewFrame
from tests.show.test_html import Tags

FRAME = PreviewFrame(
    {
        "id": [1, 2],
        "total": [None, Decimal("9.50")],
        "note": ["<i>a</i>", "b"],
        "total_after": [Decimal("3.00"), Decimal("9.50")],
    }
)


@pytest.mark.parametrize(
    ("columns", "places"),
    [
        (["id", "a", "b", "a_after"], [(0, None), (1, None), (3, 1), (2, None)]),
        (["id", "lonely_after"], [(0, None), (1, None)]),
        ([], []),
    ],
)
def test_each_changed_column_is_beside_what_it_was(columns: list[str], places: list[tuple[int, int | None]]) -> None:
    """N-090."""
    assert side_by_side(columns) == places


def test_changed_cells_are_marked_and_every_value_is_escaped() -> None:
    """N-104: the mark is a sign besides the colour."""
    page = preview_html(FRAME)
    shown = Tags(page)
    assert page.count('class="rs-changed') == 1
    assert "→ 3.00" in shown.text
    assert 'title="was "' in page
    assert "2 rows, 1 cells changed" in shown.text
    assert "i" not in shown.tags


def test_a_terminal_gets_the_same() -> None:
    plain = preview_table(FRAME.columns, FRAME.rows(), [True, True, False, True]).as_plain()
    assert plain.splitlines()[0].split() == ["id", "total", "total_after", "note"]
    assert "→ 3.00" in plain
    assert "→ 9.50" not in plain


def test_what_is_selected_from_a_preview_is_a_plain_frame() -> None:
    assert type(FRAME.select("id")) is pl.DataFrame
    assert isinstance(FRAME, pl.DataFrame)
