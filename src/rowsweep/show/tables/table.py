"""Hold one table of words, and show it in a terminal, as plain text or as HTML."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

from rowsweep.show.terminal import STYLES
from rowsweep.show.words.clean import as_html, clean, cut, pad
from rowsweep.show.words.facts import Tone

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_BETWEEN: Final = "  "
_NARROWEST: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Describe a column.

    `is_number` puts it to the right; `is_long` lets a narrow terminal cut its values. `rank` says how soon one leaves
    the column out: 0 never, the highest first. `prefix` is how many characters of a value a terminal shows, where a
    prefix is enough.
    """

    title: str
    is_number: bool = False
    is_long: bool = False
    rank: int = 0
    prefix: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Hold one value, and how it looks."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Hold a table; `empty` is the sentence shown in place of no rows."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str = "Nothing."

    def in_terminal(self) -> Fitted:
        """Answer the table for a terminal, fitted to whatever width that has."""
        return Fitted(self)

    def as_plain(self) -> str:
        """Answer the table as aligned lines, nothing cut or left out: what a pipe gets."""
        if not self.rows:
            return self.empty
        titles = [column.title for column in self.columns]
        lines = [titles, *([clean(cell.text) for cell in row] for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(_BETWEEN.join(self._padded(line, widths)).rstrip() for line in lines)

    def without(self, rank: int) -> Table:
        """Answer the table without its columns of this rank and higher: where there is room for the first ones only."""
        kept = [index for index, column in enumerate(self.columns) if column.rank < rank]
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in kept), rows=rows)

    def as_html(self) -> str:
        """Answer the table as HTML without script or style sheet, every value escaped."""
        if not self.rows:
            return f"<p>{as_html(self.empty)}</p>"
        aligned = [f' style="text-align:{"right" if column.is_number else "left"}"' for column in self.columns]
        titles = "".join(
            f"<th{style}>{as_html(column.title)}</th>" for column, style in zip(self.columns, aligned, strict=True)
        )
        lines = (
            "".join(f"<td{style}>{as_html(cell.text)}</td>" for cell, style in zip(row, aligned, strict=True))
            for row in self.rows
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"

    def _padded(self, line: list[str], widths: list[int]) -> list[str]:
        cells = zip(line, self.columns, widths, strict=True)
        return [pad(text, width, right=column.is_number) for text, column, width in cells]


class Fitted:
    """Draw a table within a terminal's width: columns of a high rank go first, then long words are cut."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._table.rows:
            yield Text(self._table.empty, STYLES["dim"])
            return
        widths = self._fit(options.max_width)
        titles = tuple(Cell(text=column.title, tone="dim") for column in self._table.columns)
        for row in (titles, *self._table.rows):
            yield self._line(row, widths)

    def _line(self, row: tuple[Cell, ...], widths: dict[int, int]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for index, width in widths.items():
            column = self._table.columns[index]
            text = cut(clean(row[index].text)[: column.prefix], width)
            line.append(_BETWEEN if line else "")
            line.append(pad(text, width, right=column.is_number), STYLES[row[index].tone])
        line.rstrip()
        return line

    def _fit(self, room: int) -> dict[int, int]:
        """Answer the width of each column that is shown, by its index."""
        columns = self._table.columns
        widths = {index: self._natural(index) for index in range(len(columns))}
        least = {index: min(width, _NARROWEST) if columns[index].is_long else width for index, width in widths.items()}
        for index in sorted(range(len(columns)), key=lambda index: -columns[index].rank):
            if columns[index].rank and _total(least) > room:
                del least[index]
        shown = {index: widths[index] for index in least}
        while _total(shown) > room:
            widest = max(shown, key=lambda index: shown[index] - least[index])
            if shown[widest] <= least[widest]:
                break
            shown[widest] -= 1
        return shown

    def _natural(self, index: int) -> int:
        column = self._table.columns[index]
        texts = (clean(row[index].text)[: column.prefix] for row in self._table.rows)
        return max(cell_len(column.title), *map(cell_len, texts))


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_BETWEEN) * max(len(widths) - 1, 0)
