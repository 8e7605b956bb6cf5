"""Make tables of what the ledger holds: sweeps, runs, pairs, frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rowsweep.show.tables.table import Cell, Column, Table
from rowsweep.show.words import facts, values
from rowsweep.show.words.late import late_words

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot

_RUN_PREFIX: Final = 18
"""The instant of a UUIDv7 and twelve random bits: enough of a run id to name the run by."""
_TO_THE_MINUTE: Final = 16
_AFTER: Final = "_after"


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


def applications_table(entries: Sequence[Mapping[str, Any]]) -> Table:
    """Answer what is to be done about each declared backfill, or was: `name`, `action`, `why`, `status`, `run_id`."""
    columns = (
        Column(title="sweep", is_long=True),
        Column(title="what"),
        Column(title="why", is_long=True),
        Column(title="run", prefix=_RUN_PREFIX, rank=1),
    )
    rows = tuple(
        (
            Cell(text=str(entry["name"])),
            _state(str(entry["status"] or entry["action"]), facts.tone(str(entry["status"] or entry["action"]))),
            Cell(text=str(entry["why"])),
            Cell(text=str(entry["run_id"] or ""), tone="dim"),
        )
        for entry in entries
    )
    return Table(
        columns=columns, rows=rows, empty="No backfill is declared here. Make one: rowsweep new backfill <name>"
    )


def pairs_table(pairs: Sequence[tuple[str, str]]) -> Table:
    """Answer pairs of a name and a value as two columns."""
    rows = tuple((Cell(text=name, tone="dim"), Cell(text=value)) for name, value in pairs)
    return Table(columns=(Column(title="what"), Column(title="value", is_long=True)), rows=rows)


def side_by_side(columns: Sequence[str]) -> list[tuple[int, int | None]]:
    """Answer a preview's columns in the order they are shown in: each index, and that of the column it comes after."""
    where = {name: index for index, name in enumerate(columns)}
    places: list[tuple[int, int | None]] = []
    for index, name in enumerate(columns):
        if not (name.endswith(_AFTER) and name.removesuffix(_AFTER) in where):
            places.append((index, None))
            if name + _AFTER in where:
                places.append((where[name + _AFTER], index))
    return places


def preview_table(columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool]) -> Table:
    """Answer a preview as a table, each changed column beside what it was and changed cells marked."""
    places = side_by_side(columns)
    return Table(
        columns=tuple(
            Column(title=columns[at], is_number=numeric[at], is_long=not numeric[at]) for at, before in places
        ),
        rows=tuple(tuple(_previewed(row, at, before) for at, before in places) for row in rows),
        empty="No rows.",
    )


def rejected_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Answer rows that were set aside, each with its key, when it was found and why."""
    columns = (
        Column(title="key", is_long=True),
        Column(title="set aside (UTC)", prefix=_TO_THE_MINUTE, rank=1),
        Column(title="error", is_long=True),
    )
    lines = [(row["key"], values.instant(row["at"]), row["error"]) for row in rows]
    cells = tuple(tuple(Cell(text=text) for text in line) for line in lines)
    return Table(columns=columns, rows=cells, empty="No row is set aside.")


def words_of(value: object) -> str:
    """Answer a frame's value as text, a missing one as nothing."""
    return "" if value is None else str(value)


def _previewed(row: Sequence[object], at: int, before: int | None) -> Cell:
    text = words_of(row[at])
    if before is None or text == words_of(row[before]):
        return Cell(text=text)
    return Cell(text=f"→ {text}", tone="busy")


def frame_table(columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[bool]) -> Table:
    """Answer the rows of a frame as a table; a missing value shows as nothing."""
    return Table(
        columns=tuple(
            Column(title=title, is_number=is_number, is_long=not is_number)
            for title, is_number in zip(columns, numeric, strict=True)
        ),
        rows=tuple(tuple(Cell(text=words_of(value)) for value in row) for row in rows),
        empty="No rows.",
    )


def _state_words(snapshot: Snapshot) -> str:
    percent = facts.percent_words(snapshot) if snapshot.is_open else ""
    shards = facts.shard_words(snapshot) if snapshot.is_open else ""
    words = f"{facts.state_words(snapshot)} {percent}".rstrip()
    return ", ".join(filter(None, [words, shards, facts.aside_words(snapshot), late_words(snapshot)]))


def _state(words: str, tone: facts.Tone) -> Cell:
    return Cell(text=words, tone=tone)
