"""Which rows a second look may sweep: those that it surely does not do twice, or may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from rowsweep.sweeps.late.convergence import would_change

if TYPE_CHECKING:
    from rowsweep.sweeps.late.writers import Writers
    from rowsweep.sweeps.setup import Setup
    from rowsweep.sweeps.spec import SweepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a second look sweeps: the rows that the declaration is over and for which `also` holds."""

    also: sql.Composed | None

    def without(self, others: sql.Composed) -> Look:
        """Answer a look at those of its rows for which another condition holds too; only of these is its own asked."""
        return Look(also=others if self.also is None else only_of(others, self.also, otherwise=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What is proved of a sweep: that it uses its condition up, or that its expressions come to the same again."""

    uses_up: bool
    converges: bool


def judge(spec: SweepSpec, setup: Setup, writers: Writers, proof: Proof) -> Look | None:
    """Answer what a second look sweeps; None where it must not.

    A row that matches was either missed, or it matches again since another transaction wrote it. It is due where
    `where` says so and is used up by the sweep (no row that was done still matched then), or where the expressions
    come to the same however often they are applied, and would change it. Otherwise it cannot be told from one that
    was done before, and only a sweep that may repeat (at-least-once, or `late="again"`) takes what those wrote who
    were open at the last page: nothing of that is the sweep's own.
    """
    rows, assignments = spec.rows, spec.assignments
    may_repeat = spec.late == "again" or not spec.is_exactly_once
    if spec.late == "report":
        return None
    if is_proved(spec, proof):
        converges = assignments is not None and proof.converges
        return Look(also=would_change(setup.statements(rows), assignments or {}) if converges else None)
    return Look(also=written_by(writers)) if may_repeat and writers.open else None


def is_proved(spec: SweepSpec, proof: Proof) -> bool:
    """Whether the rows themselves tell which of them are due: none is missed then that was committed by the look."""
    by_set = spec.assignments is not None and proof.converges and (spec.rows.where is not None or spec.late == "again")
    return spec.late != "report" and (by_set or (spec.rows.where is not None and proof.uses_up))


def needs_snapshot(spec: SweepSpec, proof: Proof) -> bool:
    """Whether nothing but a snapshot of the sweep's end tells late rows from those that were done."""
    return spec.late == "due" and spec.is_exactly_once and not is_proved(spec, proof)


def only_of(others: sql.Composed, also: sql.Composed, *, otherwise: bool) -> sql.Composed:
    """Ask a condition only of rows for which another holds: it may fail for the rest, whose answer is `otherwise`."""
    form = "case when {} then {} else {} end"
    return sql.SQL(form).format(others, also, sql.SQL("true" if otherwise else "false"))


def written_by(writers: Writers) -> sql.Composed:
    """Ask of a row whether one of them wrote it (in no savepoint that was over), or anybody since they were found."""
    form = "({} or xmin::pg_catalog.text::pg_catalog.int8 = any ({}::pg_catalog.int8[]))"
    ids = sql.Literal([xid & 0xFFFFFFFF for xid in writers.ids])
    return sql.SQL(form).format(since(writers.behind), ids)


def since(xid: int) -> sql.Composed:
    """Ask of a row whether a transaction wrote it whose id is this one or a later one.

    A row has the lower half of its transaction's id only, so ages are compared. One of a frozen row may be as young by
    chance, once in some thousands of millions of transactions.
    """
    form = "pg_catalog.age(xmin) <= pg_catalog.age({}::pg_catalog.xid)"
    return sql.SQL(form).format(sql.Literal(str(xid & 0xFFFFFFFF)))
