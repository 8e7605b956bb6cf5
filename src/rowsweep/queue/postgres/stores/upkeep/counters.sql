-- name: list
-- Buckets are folded in their order, so a finer one counts beside the coarser tier only behind the last of that.
with open as materialized (
  select coalesce((select max(c.bucket) + interval '1 hour' from /* schema */x_job_counters c where c.tier = 'hour'),
                  timestamptz '-infinity') as minutes_from,
         coalesce((select max(c.bucket) + interval '24 hours' from /* schema */x_job_counters c where c.tier = 'day'),
                  timestamptz '-infinity') as hours_from,
         coalesce(date_trunc(%(tier)s::text, %(since)s::timestamptz, 'UTC'), timestamptz '-infinity') as since
),
wanted as (
  select c.tier, c.bucket, c.name, c.completed, c.retried, c.deferred, c.dead, c.dropped, c.refused, c.run_ms,
         c.max_run_ms
  from open o
  join /* schema */x_job_counters c on c.tier = %(tier)s::text and c.bucket >= o.since
  union all
  select c.tier, c.bucket, c.name, c.completed, c.retried, c.deferred, c.dead, c.dropped, c.refused, c.run_ms,
         c.max_run_ms
  from open o
  join /* schema */x_job_counters c on c.tier = 'minute' and c.bucket >= greatest(o.since, o.minutes_from)
  where %(tier)s::text in ('hour', 'day')
  union all
  select c.tier, c.bucket, c.name, c.completed, c.retried, c.deferred, c.dead, c.dropped, c.refused, c.run_ms,
         c.max_run_ms
  from open o
  join /* schema */x_job_counters c on c.tier = 'hour' and c.bucket >= greatest(o.since, o.hours_from)
  where %(tier)s::text = 'day'
)
select r.bucket, r.name, sum(r.completed)::bigint, sum(r.retried)::bigint, sum(r.deferred)::bigint,
       sum(r.dead)::bigint, sum(r.dropped)::bigint, sum(r.refused)::bigint, sum(r.run_ms)::bigint, max(r.max_run_ms)
from (
  select date_trunc(%(tier)s::text, w.bucket, 'UTC') as bucket, w.name, w.completed, w.retried, w.deferred, w.dead,
         w.dropped, w.refused, w.run_ms, w.max_run_ms
  from wanted w
  where %(name)s::text is null or w.name = %(name)s::text
) r
group by r.bucket, r.name
order by r.bucket desc, r.name
limit %(limit)s::bigint;

-- name: rollup_counters
-- The oldest hours first, a few a statement, however many are left; a day goes with its last hour, from the hours of
-- this very snapshot: folded from stored ones alone it would be without that hour for good. The leader's lease is the
-- fence and is renewed in one, so that a fold costs an idle scheduler no statement more.
with recursive led as materialized (
  update /* schema */x_scheduler_leader l
  set expires_at = now() + make_interval(secs => %(seconds)s::double precision)
  where l.name = %(leader)s::text and l.holder = %(holder)s::text and l.expires_at > now()
  returning l.name
),
bounds as materialized (
  select a.is_allowed, date_trunc('hour', now() - interval '1 minute', 'UTC') as closed_at,
         coalesce((select max(c.bucket) + interval '1 hour' from /* schema */x_job_counters c where c.tier = 'hour'),
                  timestamptz '-infinity') as minutes_from,
         coalesce((select max(c.bucket) + interval '24 hours' from /* schema */x_job_counters c where c.tier = 'day'),
                  timestamptz '-infinity') as hours_from
  from (select %(holder)s::text is null or exists (select from led) as is_allowed) a
),
todo (bucket, position) as (
  select (select date_trunc('hour', min(c.bucket), 'UTC')
          from /* schema */x_job_counters c
          where c.tier = 'minute' and c.bucket >= b.minutes_from and c.bucket < b.closed_at), 1
  from bounds b
  where b.is_allowed
  union all
  select (select date_trunc('hour', min(c.bucket), 'UTC')
          from /* schema */x_job_counters c
          where c.tier = 'minute' and c.bucket >= t.bucket + interval '1 hour' and c.bucket < b.closed_at),
         t.position + 1
  from todo t
  cross join bounds b
  where t.bucket is not null and t.position <= %(hours)s::integer
),
left_over as materialized (
  select max(t.bucket) as bucket from todo t where t.position > %(hours)s::integer
),
hours as materialized (
  select t.bucket, c.name, sum(c.completed)::bigint as completed, sum(c.retried)::bigint as retried,
         sum(c.deferred)::bigint as deferred, sum(c.dead)::bigint as dead, sum(c.dropped)::bigint as dropped,
         sum(c.refused)::bigint as refused, sum(c.run_ms)::bigint as run_ms, max(c.max_run_ms) as max_run_ms
  from todo t
  join /* schema */x_job_counters c
    on c.tier = 'minute' and c.bucket >= t.bucket and c.bucket < t.bucket + interval '1 hour'
  where t.position <= %(hours)s::integer
  group by t.bucket, c.name
),
days as (
  select date_trunc('day', u.bucket, 'UTC') as bucket, u.name, sum(u.completed)::bigint as completed,
         sum(u.retried)::bigint as retried, sum(u.deferred)::bigint as deferred, sum(u.dead)::bigint as dead,
         sum(u.dropped)::bigint as dropped, sum(u.refused)::bigint as refused, sum(u.run_ms)::bigint as run_ms,
         max(u.max_run_ms) as max_run_ms
  from bounds b
  cross join left_over o
  cross join lateral (
    select h.bucket, h.name, h.completed, h.retried, h.deferred, h.dead, h.dropped, h.refused, h.run_ms, h.max_run_ms
    from hours h
    union all
    select c.bucket, c.name, c.completed, c.retried, c.deferred, c.dead, c.dropped, c.refused, c.run_ms, c.max_run_ms
    from /* schema */x_job_counters c
    where c.tier = 'hour' and c.bucket >= b.hours_from
  ) u
  where b.is_allowed and u.bucket < date_trunc('day', coalesce(o.bucket, b.closed_at), 'UTC')
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
select b.is_allowed, (select count(*) from folded),
       case when o.bucket is not null then 0
            else extract(epoch from b.closed_at + interval '1 hour 1 minute' - now()) end::double precision
from bounds b
cross join left_over o;
