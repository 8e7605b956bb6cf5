"""Show a preview side by side: each changed column beside what it was, changed cells marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rowsweep.show.html.style import STYLE
from rowsweep.show.tables.sweeps import side_by_side, words_of
from rowsweep.show.words.clean import as_html

if TYPE_CHECKING:
    import polars as pl


def preview_html(frame: pl.DataFrame) -> str:
    """Answer the frame as a table, every value escaped; a changed cell has a mark besides its colour."""
    places = side_by_side(frame.columns)
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    titles = "".join(
        f'<th scope="col"{_side(numeric[at])}>{as_html(frame.columns[at if before is None else before])}'
        f"{'' if before is None else ' <small>after</small>'}</th>"
        for at, before in places
    )
    rows = "".join(f"<tr>{_row(row, places, numeric)}</tr>" for row in frame.rows())
    changed = sum(_differs(row, at, before) for row in frame.rows() for at, before in places)
    words = f"{frame.height:,} rows, {changed:,} cells changed (→); everything was rolled back"
    return (
        f'{STYLE}<div class="rowsweep rs-frame" style="overflow-x:auto"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{rows}</tbody></table><small>{as_html(words)}</small></div>"
    )


def _row(row: Sequence[object], places: Sequence[tuple[int, int | None]], numeric: Sequence[bool]) -> str:
    cells = []
    for at, before in places:
        text = as_html(words_of(row[at]))
        if _differs(row, at, before):
            classes = "rs-changed rs-number" if numeric[at] else "rs-changed"
            cells.append(f'<td class="{classes}" title="was {as_html(words_of(row[before or 0]))}">→ {text}</td>')
        else:
            cells.append(f"<td{_side(numeric[at])}>{text}</td>")
    return "".join(cells)


def _differs(row: Sequence[object], at: int, before: int | None) -> bool:
    return before is not None and words_of(row[at]) != words_of(row[before])


def _side(is_number: bool) -> str:
    return ' class="rs-number"' if is_number else ""
