"""The one question that is asked of a database while a sweep works on it: a single statement that only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rowsweep.clock import real_monotonic
from rowsweep.sweeps.health.reading import Reading, reading_of
from rowsweep.sweeps.keyset.cursor import run

if TYPE_CHECKING:
    from psycopg import Connection

# Only columns that Postgres 15 to 18 all have. What a role may not see is null there, not an error: `sees_all` tells
# that from nothing. A standby has no position of its own to write to, so CASE keeps the primary's functions from it.
# To find who waits for whom locks the lock manager for a moment, so it is asked for the longest waits only. A vacuum's
# own snapshot holds nothing back. A segment is archived behind the last one archived; where none ever was, from the
# first that failed.
QUESTION: Final = r"""
with me as materialized (
  select pg_catalog.pg_has_role('pg_read_all_stats', 'usage') as sees_all, pg_catalog.pg_is_in_recovery() as is_standby,
         (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()) as db,
         case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
              else pg_catalog.pg_current_wal_lsn() end as lsn
),
session as materialized (
  select a.pid, a.datid, a.state, a.backend_type, a.xact_start, a.backend_xmin
  from pg_catalog.pg_stat_activity a
  where a.pid <> pg_catalog.pg_backend_pid() and a.pid <> all (%(ours)s::int[])
),
vacuum as materialized (
  select v.pid, v.relid, v.phase
  from pg_catalog.pg_stat_progress_vacuum v, me
  where v.datid = me.db
),
standby as materialized (
  select coalesce(nullif(r.application_name, ''), 'pid ' || r.pid) as name,
         pg_catalog.pg_wal_lsn_diff(me.lsn, r.replay_lsn) as behind,
         pg_catalog.pg_wal_lsn_diff(r.replay_lsn, '0/0') as replayed,
         extract(epoch from r.replay_lag) as seconds, r.state, r.replay_lsn
  from pg_catalog.pg_stat_replication r, me
),
archiver as materialized (
  select pg_catalog.current_setting('archive_mode') <> 'off' and not me.is_standby as archives,
         pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')) as segment,
         coalesce(substring(s.last_archived_wal from '^[0-9A-F]{24}'),
                  substring(s.last_failed_wal from '^[0-9A-F]{24}')) as wal,
         case when s.last_archived_wal ~ '^[0-9A-F]{24}' then 0 else 1 end as missing
  from pg_catalog.pg_stat_archiver s, me
),
waiting as materialized (
  select l.pid, min(l.waitstart) as since
  from pg_catalog.pg_locks l
  where not l.granted and l.pid <> all (%(ours)s::int[]) and pg_catalog.cardinality(%(ours)s::int[]) > 0
  group by l.pid
  order by 2
  limit 20
),
on_us as materialized (
  select w.since from waiting w where pg_catalog.pg_blocking_pids(w.pid) && %(ours)s::int[]
),
oldest as materialized (
  select s.pid, extract(epoch from pg_catalog.clock_timestamp() - s.xact_start) as seconds
  from session s, me
  where s.datid = me.db and s.backend_xmin is not null and s.xact_start is not null
    and s.backend_type = 'client backend' and not exists (select from vacuum v where v.pid = s.pid)
  order by s.xact_start
  limit 1
)
select me.sees_all, me.is_standby, pg_catalog.pg_wal_lsn_diff(me.lsn, '0/0'),
       (select pg_catalog.count(*) from standby),
       (select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
                 'name', s.name, 'behind', s.behind, 'replayed', s.replayed, 'seconds', s.seconds)), '[]')
        from standby s where s.state in ('streaming', 'catchup') and s.replay_lsn is not null),
       a.archives,
       case when a.archives then
         greatest(pg_catalog.div(pg_catalog.pg_wal_lsn_diff(me.lsn, '0/0'), a.segment)
                  - (('x' || substr(a.wal, 9, 8))::bit(32)::bigint * pg_catalog.div(4294967296, a.segment)
                     + ('x' || substr(a.wal, 17, 8))::bit(32)::bigint)
                  - 1 + a.missing, 0) * a.segment end,
       (select pg_catalog.count(*) from on_us),
       (select coalesce(extract(epoch from pg_catalog.clock_timestamp() - min(u.since)), 0) from on_us u),
       (select pg_catalog.count(*) from session s where s.state = 'active' and s.backend_type = 'client backend'),
       pg_catalog.current_setting('max_connections')::int,
       coalesce((select o.seconds from oldest o), 0), (select o.pid from oldest o),
       (select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
                 'phase', v.phase,
                 'tables', (select coalesce(pg_catalog.json_agg(
                              pg_catalog.json_build_array(n.nspname, c.relname)), '[]')
                            from pg_catalog.pg_class c
                            join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                            where c.oid = v.relid
                               or c.oid in (select p.relid from pg_catalog.pg_partition_ancestors(v.relid) p)))), '[]')
        from vacuum v)
from me, archiver a"""


def ask(connection: Connection[Any], ours: Sequence[int], *, knows_ours: bool = True) -> Reading:
    """Ask how the database is; `ours` are the backends that the sweeps of this process work on.

    Behind a pooler nobody knows which those are.
    """
    row = run(connection, QUESTION, {"ours": list(ours)}).fetchone()
    assert row is not None  # noqa: S101 - it selects from one row
    return replace(reading_of(row, real_monotonic()), knows_ours=knows_ours)
