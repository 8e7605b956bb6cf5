"""Run the first rows of a sweep through the real path, answer before and after, and roll back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rowsweep.errors import RowsweepError, UnsafePreview
from rowsweep.options import count
from rowsweep.sweeps.batch.closing import check_transaction
from rowsweep.sweeps.batch.connection import BatchConnection
from rowsweep.sweeps.batch.forms.reading import PageRows
from rowsweep.sweeps.batch.pages import Page, PageFinder
from rowsweep.sweeps.batch.work import HandlerCall
from rowsweep.sweeps.blame import own_lines
from rowsweep.sweeps.executors.calls import calling
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.passes.position import Position
from rowsweep.sweeps.run import host
from rowsweep.sweeps.setup import check_sweep, statements_for

if TYPE_CHECKING:
    import polars as pl

    from rowsweep.sweeps.declare import RowSweep
    from rowsweep.sweeps.executors.calls import Calls
    from rowsweep.sweeps.keyset.catalog import Table

_NO_RUN = str(UUID(int=0))


class _RolledBack(Exception):
    """Leave the preview's transaction without committing it."""


def preview(sweep: RowSweep[Any], n: int, value: Any, *, allow_effects: bool) -> pl.DataFrame:
    """Answer the first n matching rows before and after; nothing stays."""
    rows = count(n, option="n", minimum=1, maximum=100_000)
    if not sweep.spec.atomic and not allow_effects:
        raise UnsafePreview(
            f"{sweep.name!r} is declared atomic=False: its handler may act elsewhere, which no rollback undoes.",
            fix=f"preview({n}, allow_effects=True)",
            meta={"sweep": sweep.name},
        )
    parsed, _ = sweep.options.input.dump(value)
    tenant = sweep.tenant_for(parsed)
    held = sweep.held_on(host(), None, tenant)
    answer: list[pl.DataFrame] = []
    try:
        with _computing(sweep, held, parsed) as calls, held.transaction():
            answer.append(_previewed(sweep, held, parsed, rows, calls))
            raise _RolledBack
    except _RolledBack:
        return answer[0]
    except RowsweepError:
        raise
    except Exception as error:  # noqa: BLE001 - it goes on, without what lies between the caller and the handler
        raise error.with_traceback(own_lines(error) or error.__traceback__) from error.__cause__
    finally:
        held.release()


@contextmanager
def _computing(sweep: RowSweep[Any], held: BatchConnection, value: Any) -> Iterator[Calls | None]:
    """Start the executor, where one is declared, before any row is locked."""
    if sweep.spec.executor is None:
        yield None
        return
    with held.transaction():
        table = check_sweep(held.connection, sweep.spec)
    with calling(sweep, table, value, None) as calls:
        calls.start()
        yield calls


def _previewed(sweep: RowSweep[Any], held: BatchConnection, value: Any, rows: int, calls: Calls | None) -> pl.DataFrame:
    spec = sweep.spec
    table = check_sweep(held.connection, spec)
    statements = statements_for(table, spec.rows, bounded=False)
    params = spec.rows.params_form or {}
    found = run(held.connection, statements.first_matching(), {**params, "rs_limit": rows}).fetchone()
    if found is None:
        return _empty(sweep, held, table)
    to = tuple(found)
    finder = PageFinder(held, statements_for(table, spec.rows, bounded=True), params, to)
    before = _reader(finder, table, to, matching=True).frame()
    if spec.assignments is not None:
        finder.update(spec.assignments, Position(), Page(is_full=True, to=to))
    else:
        _run_handler(sweep, finder, table, value, Page(is_full=True, to=to), calls)
    held.connection.execute("set constraints all immediate")  # what a commit would only then refuse
    after = _reader(finder, table, to, matching=False).frame()
    return _side_by_side(sweep, table, before, after)


def _run_handler(
    sweep: RowSweep[Any], finder: PageFinder, table: Table, value: Any, page: Page, calls: Calls | None
) -> None:
    handler = sweep.spec.handler
    assert handler is not None  # noqa: S101 - the declaration has one or the other
    call = HandlerCall(
        finder=finder, handler=handler, columns=sweep.read_columns(table), run_id=_NO_RUN, ctx=None, input=value
    )
    reader = call.reader(Position(), page.to, lock=True)
    if calls is None:
        answer = call.handler(call.batch(Position(), page.to, reader))
    else:
        answer = calls.compute(reader, call.place(Position(), page.to))
    check_transaction(finder.held.connection)
    call.write(answer, Position(), page.to, reader)


def _reader(finder: PageFinder, table: Table, to: tuple[str, ...], *, matching: bool) -> PageRows:
    return PageRows(
        connection=lambda: finder.held.connection,
        statements=finder.statements,
        columns=table.columns,
        values=finder.page_values(Position(), to),
        started=False,
        lock=False,
        matching=matching,
    )


def _empty(sweep: RowSweep[Any], held: BatchConnection, table: Table) -> pl.DataFrame:
    """Answer no rows, in the shape they would have."""
    statements = statements_for(table, sweep.spec.rows, bounded=True)
    nothing = PageRows(
        connection=lambda: held.connection,
        statements=statements,
        columns=sweep.read_columns(table),
        values={**(sweep.spec.rows.params_form or {}), **cursor_values("u", [None for _ in table.key])},
        started=False,
        lock=False,
    )
    return nothing.frame()


def _side_by_side(sweep: RowSweep[Any], table: Table, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Join the two by key: swept columns as they were, and `<column>_after` for each that changed."""
    import polars as pl

    from rowsweep.sweeps.previewed import PreviewFrame

    key = list(table.key)
    swept = [column.name for column in sweep.read_columns(table)]
    joined = before.join(after, on=key, how="left", suffix="_after", maintain_order="left", nulls_equal=True)
    assigned = sweep.spec.assignments or {}
    changed = [
        name
        for name in before.columns
        if name not in key
        and (name in assigned or joined.select((pl.col(name).ne_missing(pl.col(f"{name}_after"))).any()).item())
    ]
    shown = list(dict.fromkeys([*key, *swept, *changed]))
    return PreviewFrame(joined.select(*shown, *(f"{name}_after" for name in changed)))
