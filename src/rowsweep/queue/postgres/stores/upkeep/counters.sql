-- name: list
-- A finer bucket that no coarser one holds yet is added to the one it will be folded into.
select r.bucket, r.name, sum(r.completed)::bigint, sum(r.retried)::bigint, sum(r.deferred)::bigint,
       sum(r.dead)::bigint, sum(r.dropped)::bigint, sum(r.refused)::bigint, sum(r.run_ms)::bigint, max(r.max_run_ms)
from (
  select date_trunc(%(tier)s::text, c.bucket, 'UTC') as bucket, c.name, c.completed, c.retried, c.deferred, c.dead,
         c.dropped, c.refused, c.run_ms, c.max_run_ms
  from /* schema */x_job_counters c
  where (%(name)s::text is null or c.name = %(name)s::text)
    and (%(since)s::timestamptz is null or c.bucket >= date_trunc(%(tier)s::text, %(since)s::timestamptz, 'UTC'))
    and (c.tier = %(tier)s::text
      or (%(tier)s::text in ('hour', 'day') and c.tier = 'minute' and not exists (
        select from /* schema */x_job_counters f
        where f.tier = 'hour' and f.name = c.name and f.bucket = date_trunc('hour', c.bucket, 'UTC')))
      or (%(tier)s::text = 'day' and c.tier = 'hour' and not exists (
        select from /* schema */x_job_counters f
        where f.tier = 'day' and f.name = c.name and f.bucket = date_trunc('day', c.bucket, 'UTC'))))
) r
group by r.bucket, r.name
order by r.bucket desc, r.name
limit %(limit)s::bigint;

-- name: rollup_counters
-- Days come from the hours stored and from those about to be, all as one snapshot has them: a day that was folded from
-- stored hours alone would be without its last one for good. The leader's lease is fence and renewed in one, so that a
-- fold costs an idle scheduler no statement more.
with led as materialized (
  update /* schema */x_scheduler_leader l
  set expires_at = now() + make_interval(secs => %(seconds)s::double precision)
  where l.name = %(leader)s::text and l.holder = %(holder)s::text and l.expires_at > now()
  returning l.name
),
allowed as materialized (
  select %(holder)s::text is null or exists (select from led) as is_allowed, now() - interval '1 minute' as closed_at
),
hours as materialized (
  select date_trunc('hour', c.bucket, 'UTC') as bucket, c.name, sum(c.completed)::bigint as completed,
         sum(c.retried)::bigint as retried, sum(c.deferred)::bigint as deferred, sum(c.dead)::bigint as dead,
         sum(c.dropped)::bigint as dropped, sum(c.refused)::bigint as refused, sum(c.run_ms)::bigint as run_ms,
         max(c.max_run_ms) as max_run_ms
  from allowed a
  join /* schema */x_job_counters c on c.tier = 'minute' and c.bucket < date_trunc('hour', a.closed_at, 'UTC')
  where a.is_allowed and not exists (
    select from /* schema */x_job_counters f
    where f.tier = 'hour' and f.name = c.name and f.bucket = date_trunc('hour', c.bucket, 'UTC'))
  group by date_trunc('hour', c.bucket, 'UTC'), c.name
),
days as (
  select date_trunc('day', u.bucket, 'UTC') as bucket, u.name, sum(u.completed)::bigint as completed,
         sum(u.retried)::bigint as retried, sum(u.deferred)::bigint as deferred, sum(u.dead)::bigint as dead,
         sum(u.dropped)::bigint as dropped, sum(u.refused)::bigint as refused, sum(u.run_ms)::bigint as run_ms,
         max(u.max_run_ms) as max_run_ms
  from allowed a
  cross join lateral (
    select h.bucket, h.name, h.completed, h.retried, h.deferred, h.dead, h.dropped, h.refused, h.run_ms, h.max_run_ms
    from hours h
    union all
    select c.bucket, c.name, c.completed, c.retried, c.deferred, c.dead, c.dropped, c.refused, c.run_ms, c.max_run_ms
    from /* schema */x_job_counters c
    where c.tier = 'hour'
  ) u
  where a.is_allowed and u.bucket < date_trunc('day', a.closed_at, 'UTC') and not exists (
    select from /* schema */x_job_counters f
    where f.tier = 'day' and f.name = u.name and f.bucket = date_trunc('day', u.bucket, 'UTC'))
  group by date_trunc('day', u.bucket, 'UTC'), u.name
),
folded as (
  insert into /* schema */x_job_counters
    (tier, bucket, name, shard, completed, retried, deferred, dead, dropped, refused, run_ms, max_run_ms)
  select t.tier, t.bucket, t.name, 0, t.completed, t.retried, t.deferred, t.dead, t.dropped, t.refused, t.run_ms,
         t.max_run_ms
  from (
    select 'hour' as tier, h.bucket, h.name, h.completed, h.retried, h.deferred, h.dead, h.dropped, h.refused,
           h.run_ms, h.max_run_ms
    from hours h
    union all
    select 'day', d.bucket, d.name, d.completed, d.retried, d.deferred, d.dead, d.dropped, d.refused, d.run_ms,
           d.max_run_ms
    from days d
  ) t
  order by t.tier, t.bucket, t.name
  on conflict (tier, bucket, name, shard) do nothing
  returning bucket
)
select a.is_allowed, (select count(*) from folded),
       extract(epoch from date_trunc('hour', a.closed_at, 'UTC') + interval '1 hour 1 minute' - now())::double precision
from allowed a;
