"""Make tables of what the queue and the ledger hold: sweeps, runs, jobs, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rowsweep.show import facts, values
from rowsweep.show.table import Cell, Column, Table

if TYPE_CHECKING:
    from rowsweep.queue.records import Job
    from rowsweep.sweeps.snapshot import Snapshot

_RUN_PREFIX: Final = 18
"""The instant of a UUIDv7 and twelve random bits: enough of a run id to name the run by."""
_TO_THE_MINUTE: Final = 16


def ledger_table(snapshots: Sequence[Snapshot]) -> Table:
    """Answer the ledger's runs, one a line, in the order they came."""
    columns = (
        Column(title="run", prefix=_RUN_PREFIX, rank=1),
        Column(title="sweep", is_long=True),
        Column(title="state"),
        Column(title="rows", is_number=True),
        Column(title="batches", is_number=True, rank=4),
        Column(title="at work", is_number=True, rank=3),
        Column(title="started (UTC)", prefix=_TO_THE_MINUTE, rank=2),
        Column(title="by", is_long=True, rank=5),
    )
    rows = tuple(
        (
            Cell(text=snapshot.run_id, tone="dim"),
            Cell(text=snapshot.name),
            _state(_state_words(snapshot), facts.tone(snapshot.words)),
            Cell(text=values.number(snapshot.rows)),
            Cell(text=values.number(snapshot.batches)),
            Cell(text=values.span(snapshot.active_seconds)),
            Cell(text=values.instant(snapshot.started_at)),
            Cell(text=snapshot.launched_by or ""),
        )
        for snapshot in snapshots
    )
    return Table(columns=columns, rows=rows, empty="No sweep has run here yet.")


def sweeps_table(declared: Sequence[Mapping[str, Any]]) -> Table:
    """Answer the sweeps declared here, each with what the ledger says of it.

    An entry has `name`, `kind`, `state`, `table`, and `last`, the Snapshot of its newest run or None.
    """
    columns = (
        Column(title="sweep", is_long=True),
        Column(title="state"),
        Column(title="table", is_long=True, rank=1),
        Column(title="last run"),
        Column(title="rows", is_number=True, rank=2),
        Column(title="started (UTC)", prefix=_TO_THE_MINUTE, rank=3),
    )
    return Table(
        columns=columns,
        rows=tuple(_declared(entry) for entry in declared),
        empty="No sweep is declared here. Make one: rowsweep new backfill <name>",
    )


def _declared(entry: Mapping[str, Any]) -> tuple[Cell, ...]:
    last: Snapshot | None = entry["last"]
    return (
        Cell(text=str(entry["name"])),
        _state(str(entry["state"]), facts.tone(str(entry["state"]))),
        Cell(text=str(entry["table"])),
        Cell(text="") if last is None else _state(_state_words(last), facts.tone(last.words)),
        Cell(text="" if last is None else values.number(last.rows)),
        Cell(text="" if last is None else values.instant(last.started_at)),
    )


def jobs_table(jobs: Sequence[Job]) -> Table:
    """Answer jobs, one a line, in the order they came."""
    columns = (
        Column(title="job", rank=1),
        Column(title="name", is_long=True),
        Column(title="queue", is_long=True, rank=4),
        Column(title="state"),
        Column(title="attempt", is_number=True, rank=3),
        Column(title="due (UTC)", prefix=_TO_THE_MINUTE, rank=5),
        Column(title="error", is_long=True, rank=2),
    )
    rows = tuple(
        (
            Cell(text=str(job.id), tone="dim"),
            Cell(text=job.name),
            Cell(text=job.queue),
            _state(job.state, facts.tone(job.state)),
            Cell(text=f"{job.attempt}/{job.max_attempts}"),
            Cell(text=values.instant(job.run_at)),
            Cell(text=job.last_error_code or job.last_error or ""),
        )
        for job in jobs
    )
    return Table(columns=columns, rows=rows, empty="No such job.")


def names_table(declared: Sequence[Mapping[str, Any]], undeclared: Sequence[tuple[str, str, int]]) -> Table:
    """Answer the job names declared here, then those that wait in the queue and nobody declares."""
    columns = (
        Column(title="job"),
        Column(title="kind"),
        Column(title="queue", is_long=True),
        Column(title="waiting", is_long=True),
    )
    known = tuple(
        (Cell(text=entry["name"]), Cell(text=entry["kind"]), Cell(text=entry["queue"]), Cell(text=""))
        for entry in declared
    )
    unknown = tuple(
        (
            Cell(text=name),
            Cell(text="not declared", tone="warn"),
            Cell(text=queue),
            Cell(text=f"{values.number(rows)} that nobody here and no live worker has code for", tone="warn"),
        )
        for queue, name, rows in undeclared
    )
    return Table(columns=columns, rows=known + unknown, empty="No job is declared here, and none waits.")


def pairs_table(pairs: Sequence[tuple[str, str]]) -> Table:
    """Answer pairs of a name and a value as two columns."""
    rows = tuple((Cell(text=name, tone="dim"), Cell(text=value)) for name, value in pairs)
    return Table(columns=(Column(title="what"), Column(title="value", is_long=True)), rows=rows)


def frame_table(columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool]) -> Table:
    """Answer the rows of a frame as a table; a missing value shows as nothing."""
    return Table(
        columns=tuple(
            Column(title=title, is_number=is_number, is_long=not is_number)
            for title, is_number in zip(columns, numeric, strict=True)
        ),
        rows=tuple(tuple(Cell(text="" if value is None else str(value)) for value in row) for row in rows),
        empty="No rows.",
    )


def _state_words(snapshot: Snapshot) -> str:
    percent = facts.percent_words(snapshot) if snapshot.is_open else ""
    return f"{snapshot.words} {percent}".rstrip()


def _state(words: str, tone: facts.Tone) -> Cell:
    return Cell(text=words, tone=tone)
