-- name: server
-- A superuser is held by no limit; another role's snapshots show without its right to see them, its queries do not.
select clock_timestamp(), split_part(current_setting('server_version'), ' ', 1), pg_is_in_recovery(),
       (select count(*) from pg_catalog.pg_stat_activity a where a.backend_type = 'client backend'),
       current_setting('max_connections')::integer, r.rolname::text,
       case when r.rolsuper or r.rolconnlimit < 0 then null else r.rolconnlimit end,
       coalesce(extract(epoch from clock_timestamp() - o.xact_start), 0)::double precision, o.pid
from pg_catalog.pg_roles r
left join lateral (
  select a.xact_start, a.pid
  from pg_catalog.pg_stat_activity a
  where a.backend_xmin is not null and a.pid <> pg_backend_pid() and a.datname = current_database()
  order by a.xact_start
  limit 1
) o on true
where r.rolname = session_user;

-- name: depths
-- As a worker samples them, each count stopping at so many rows.
with recursive filled (queue) as (
  select (select j.queue from /* schema */x_jobs j where j.ended_as is null order by j.queue limit 1)
  union all
  select (select j.queue from /* schema */x_jobs j where j.ended_as is null and j.queue > f.queue
          order by j.queue limit 1)
  from filled f
  where f.queue is not null
),
buried as (
  select d.queue, count(*) as amount
  from (select j.queue from /* schema */x_jobs j where j.ended_as = 'dead' limit %(most)s::bigint) d
  group by d.queue
)
select q.queue, w.ready, coalesce(b.amount, 0),
       coalesce(extract(epoch from now() - w.oldest), 0)::double precision, w.seen >= %(most)s::bigint
from (select f.queue from filled f where f.queue is not null union select b.queue from buried b) q
cross join lateral (
  select count(*) filter (where r.state = 'ready' or r.run_at <= now()) as ready,
         min(r.run_at) filter (where r.run_at <= now()) as oldest, count(*) as seen
  from (select j.state, j.run_at from /* schema */x_jobs j
        where j.queue = q.queue and j.ended_as is null and j.state in ('ready', 'delayed')
        limit %(most)s::bigint) r
) w
left join buried b on b.queue = q.queue
order by q.queue;

-- name: leaders
-- An advisory lock's key is made of the schema's name and the lease's; the catalog knows the schema that is meant.
select l.name, l.holder, l.acquired_at, l.expires_at
from /* schema */x_scheduler_leader l
union all
select 'scheduler', 'session ' || k.pid, a.backend_start, now() + interval '30 seconds'
from (select c.relnamespace::regnamespace::text as schema
      from /* schema */x_schema s join pg_catalog.pg_class c on c.oid = s.tableoid limit 1) n
join pg_catalog.pg_locks k
  on k.locktype = 'advisory' and k.granted and k.objsubid = 1
  and k.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
  and (k.classid::bigint << 32 | k.objid::bigint)
      = ('x' || encode(substr(sha256(convert_to(n.schema || ':scheduler', 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
left join pg_catalog.pg_stat_activity a on a.pid = k.pid
order by 1, 2;

-- name: tables
select t.relname::text, t.n_live_tup, t.n_dead_tup, greatest(t.last_vacuum, t.last_autovacuum)
from (select c.relnamespace from /* schema */x_schema s join pg_catalog.pg_class c on c.oid = s.tableoid limit 1) n
join pg_catalog.pg_class o on o.relnamespace = n.relnamespace and o.relkind in ('r', 'p')
join pg_catalog.pg_stat_all_tables t on t.relid = o.oid
where o.relname = any (%(tables)s::text[])
order by t.relname;

-- name: kept
select extract(epoch from now() - least(
         (select min(j.ended_at) from /* schema */x_jobs j where j.ended_as = 'done'),
         (select min(j.ended_at) from /* schema */x_jobs j where j.ended_as = 'cancelled')))::double precision,
       extract(epoch from now() - least(
         (select min(j.ended_at) from /* schema */x_jobs j where j.ended_as = 'dead'),
         (select min(j.ended_at) from /* schema */x_jobs j where j.ended_as = 'failed')))::double precision;
