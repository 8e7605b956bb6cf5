"""The transactions that have written to a table and are still open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rowsweep.sweeps.keyset.cursor import run

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.sweeps.keyset.catalog import Table

# A writer holds its lock on the table, or on a sequence that gave it a key, until it ends; a prepared one too. Its
# transaction id has a lock as well, of which the lower half of the id is to be read: the nearer one is meant.
_OPEN: Final = """
    with recursive swept as (
      select %(table)s::pg_catalog.regclass::pg_catalog.oid as oid
      union all
      select i.inhrelid from swept s join pg_catalog.pg_inherits i on i.inhparent = s.oid
    ), watched as (
      select oid from swept
      union
      select d.objid from swept s
        join pg_catalog.pg_depend d on d.refobjid = s.oid and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
         and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.deptype in ('a', 'i')
        join pg_catalog.pg_class c on c.oid = d.objid and c.relkind = 'S'
    ), held as materialized (
      select l.locktype, l.mode, l.database, l.relation, l.virtualtransaction, l.transactionid, l.pid
        from pg_catalog.pg_locks l where l.granted
    ), writers as (
      select distinct h.virtualtransaction as writer from held h join watched w on w.oid = h.relation
       where h.locktype = 'relation' and h.mode = 'RowExclusiveLock'
         and h.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
         and h.pid is distinct from pg_catalog.pg_backend_pid()
    ), clock as materialized (
      select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::pg_catalog.int8 as behind
    )
    select c.behind, pg_catalog.clock_timestamp()::pg_catalog.text,
           array(select w.writer from writers w order by 1),
           array(select c.behind - ((c.behind - h.transactionid::pg_catalog.text::pg_catalog.int8 + 2147483648
                                     & 4294967295) - 2147483648)
                   from held h join writers w on w.writer = h.virtualtransaction where h.locktype = 'transactionid')
      from clock c"""
_LEFT: Final = """
    select array(select distinct l.virtualtransaction from pg_catalog.pg_locks l
                  where l.virtualtransaction = any (%(writers)s)),
           extract(epoch from pg_catalog.clock_timestamp() - %(at)s::pg_catalog.timestamptz)::pg_catalog.float8"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """Who had written to the table and was open at an instant, by virtual transaction.

    `ids` are their transaction ids (those of savepoints that are over are unknown, and higher); every transaction that
    was over by then had one below `behind`.
    """

    open: tuple[str, ...]
    ids: tuple[int, ...]
    behind: int
    at: str

    def as_json(self) -> Json:
        """Answer the step's stored value."""
        return {"open": list(self.open), "ids": list(self.ids), "behind": self.behind, "at": self.at}

    @classmethod
    def from_json(cls, stored: Any) -> Writers:
        """Restore what the step stored."""
        return cls(open=tuple(stored["open"]), ids=tuple(stored["ids"]), behind=stored["behind"], at=stored["at"])


def find_writers(connection: Any, table: Table) -> Writers:
    """Find who has written to the table and is open now; a session's own transaction does not count."""
    name = table.identifier.as_string(connection).replace("%%", "%")
    row = run(connection, _OPEN, {"table": name}).fetchone()
    assert row is not None  # noqa: S101 - one clock
    behind, at, writers, ids = row
    return Writers(open=tuple(writers), ids=tuple(ids), behind=behind, at=at)


def still_open(connection: Any, writers: Writers) -> tuple[tuple[str, ...], float]:
    """Answer which of them are open still, and how many seconds ago they were found."""
    row = run(connection, _LEFT, {"writers": list(writers.open), "at": writers.at}).fetchone()
    assert row is not None  # noqa: S101 - one row
    return tuple(row[0]), float(row[1])
