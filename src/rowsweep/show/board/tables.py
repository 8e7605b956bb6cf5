"""Put a board into tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.show.tables import queue
from rowsweep.show.tables.table import Cell, Column, Table
from rowsweep.show.words import facts, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.operate.board import Board, ScheduleView
    from rowsweep.operate.views import PauseView
    from rowsweep.sweeps.snapshot import Snapshot

_TO_THE_MINUTE: Final = 16


def board_tables(board: Board) -> list[tuple[str, Table]]:
    """Answer the board's tables under their titles; what is never there (a pause, a dead letter) is left out."""
    found = [
        ("Sweeps", runs_table(board.runs)),
        ("Jobs", queue.stats_table(board.queues)),
        ("Workers", queue.workers_table(board.workers)),
    ]
    if board.pauses:
        found.append(("Paused", _pauses_table(board.pauses)))
    if board.dead:
        found.append(("Dead letters", queue.dead_table(board.dead)))
    if board.schedules:
        found.append(("Schedules", _schedules_table(board.schedules)))
    return found


def runs_table(runs: Sequence[Snapshot]) -> Table:
    """Answer runs, one a line, with what they do now."""
    columns = (
        Column(title="sweep", is_long=True),
        Column(title="state"),
        Column(title="rows", is_number=True),
        Column(title="rate", is_number=True, rank=3),
        Column(title="time left", is_number=True, rank=2),
        Column(title="trouble", is_long=True, rank=1),
        Column(title="run", prefix=18, rank=4),
    )
    rows = tuple(
        (
            Cell(text=run.name),
            Cell(text=f"{facts.state_words(run)} {facts.percent_words(run)}".strip(), tone=facts.tone(run.words)),
            Cell(text=values.number(run.rows)),
            Cell(text=_rate(run)),
            Cell(text="" if run.eta_seconds is None else values.span(run.eta_seconds)),
            Cell(text=facts.trouble(run) or ""),
            Cell(text=run.run_id, tone="dim"),
        )
        for run in runs
    )
    return Table(columns=columns, rows=rows, empty="No sweep has run here yet.")


def _rate(run: Snapshot) -> str:
    rate = facts.shown_rate(run)
    return "" if rate is None else values.rate(rate)


def _pauses_table(pauses: Sequence[PauseView]) -> Table:
    titles = ("queue", "job", "since (UTC)", "by", "reason")
    rows = tuple(
        tuple(
            Cell(text=text)
            for text in (
                pause.queue or "any",
                pause.name or "any",
                values.instant(pause.paused_at),
                pause.paused_by or "",
                pause.reason or "",
            )
        )
        for pause in pauses
    )
    return Table(columns=tuple(Column(title=title, is_long=title in ("by", "reason")) for title in titles), rows=rows)


def _schedules_table(schedules: Sequence[ScheduleView]) -> Table:
    columns = (
        Column(title="task", is_long=True),
        Column(title="cron", is_long=True, rank=2),
        Column(title="zone", rank=3),
        Column(title="next (UTC)", prefix=_TO_THE_MINUTE),
        Column(title="last fired (UTC)", prefix=_TO_THE_MINUTE, rank=1),
    )
    rows = tuple(
        (
            Cell(text=task.name),
            Cell(text=task.cron),
            Cell(text=task.tz),
            Cell(text=values.instant(task.next_at)),
            Cell(text=values.instant(task.last_fired_at) or "never", tone="plain" if task.last_fired_at else "dim"),
        )
        for task in schedules
    )
    return Table(columns=columns, rows=rows)
