"""Show a board in a terminal, as text, in one line for a pipe, and as a bundle for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from rich.text import Text

from rowsweep.show.board.tables import board_tables
from rowsweep.show.html.style import STYLE
from rowsweep.show.terminal import STYLES
from rowsweep.show.words import facts, values
from rowsweep.show.words.clean import as_html, clean, cut

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from rowsweep.operate.board import Board

_WIDE: Final = ("Workers", "Dead letters")
_TOO_MUCH: Final = 4
_ALWAYS_SAID: Final = ("sweeps at work", "workers")
_MOST_NAMED: Final = 3
_LONGEST_NAME: Final = 24


def board_line(board: Board) -> str:
    """Answer the board in one short line, what nobody would miss at nought left out: what a pipe gets now and then."""
    states = [run.status for run in board.runs]
    counted = [
        (states.count("running"), "sweeps at work"),
        (states.count("paused"), "paused"),
        (sum(each.running for each in board.queues), "jobs running"),
        (sum(each.due for each in board.queues), "due"),
        (sum(each.delayed for each in board.queues), "delayed"),
        (sum(each.dead for each in board.queues), "dead"),
        (len(board.workers), "workers"),
    ]
    said = [f"{what} {values.number(amount)}" for amount, what in counted if amount or what in _ALWAYS_SAID]
    running = [run for run in board.runs if run.status == "running"]
    at_work = [f"{cut(clean(run.name), _LONGEST_NAME)} {facts.percent_words(run)}".strip() for run in running]
    more = [f"and {len(at_work) - _MOST_NAMED} more"] if len(at_work) > _MOST_NAMED else []
    return "  ".join([f"{values.instant(board.taken_at)} UTC", *said, *at_work[:_MOST_NAMED], *more])


class BoardInTerminal:
    """Draw a board in a terminal, each table fitted to its width."""

    def __init__(self, board: Board, *, note: str | None = None) -> None:
        self._board = board
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((_place(self._board), "bold"), f"   {values.instant(self._board.taken_at)} UTC")
        for title, table in board_tables(self._board):
            yield Text(f"\n{title}", "bold")
            yield from console.render(table.in_terminal(), options)
        if self._note:
            yield Text(f"\n{self._note}", STYLES["dim"])


def board_text(board: Board) -> str:
    """Answer the board as plain text, nothing cut."""
    parts = [f"{_place(board)}  {values.instant(board.taken_at)} UTC"]
    parts += [f"{title}\n{table.as_plain()}" for title, table in board_tables(board)]
    return "\n\n".join(parts)


def board_bundle(board: Board, *, mark: str = "", note: str = "") -> dict[str, str]:
    """Answer the board as a page that stands still; `mark` and `note` are as in `snapshot_html`."""
    page = f"{head_html(board)}{''.join(sections_html(board))}{note}"
    return {"text/plain": board_text(board), "text/html": f'{STYLE}<div class="rowsweep {as_html(mark)}">{page}</div>'}


def head_html(board: Board) -> str:
    """Answer where and when the board was taken."""
    return (
        f'<div class="rs-head"><span class="rs-name">{as_html(_place(board))}</span> '
        f"<small>as of {values.instant(board.taken_at)} UTC</small></div>"
    )


def sections_html(board: Board) -> list[str]:
    """Answer the board's tables as HTML, the sweeps first; of wide ones the columns that matter most."""
    return [
        f'<section class="rs-board" aria-label="{as_html(title)}"><h4>{as_html(title)}</h4>'
        f"{(table.without(_TOO_MUCH) if title in _WIDE else table).as_html()}</section>"
        for title, table in board_tables(board)
    ]


def _place(board: Board) -> str:
    """Answer where the board was taken as people write it: a socket's folder without its escapes."""
    return clean(unquote(board.place))
