-- name: now
select clock_timestamp();

-- name: jobs
-- A run's steps go with its last job.
with doomed as materialized (
  select j.id, j.run_id, j.ended_at
  from /* schema */x_jobs j
  where j.ended_as = %(state)s::text and j.ended_at < %(before)s::timestamptz and j.ended_at >= %(after)s::timestamptz
  order by j.ended_at, j.id
  limit %(limit)s::bigint
  for update skip locked
),
gone as (
  delete from /* schema */x_jobs j
  where j.id = any (array(select d.id from doomed d))
  returning j.id
),
steps as (
  delete from /* schema */x_job_steps t
  where t.run_id = any (array(
    select d.run_id
    from doomed d
    where not exists (
      select from /* schema */x_jobs o
      where o.run_id = d.run_id and not exists (select from doomed m where m.id = o.id))))
  returning t.run_id
)
select (select count(*) from gone), (select max(d.ended_at) from doomed d), (select count(*) from steps);

-- name: events
with gone as (
  delete from /* schema */x_job_events e
  where e.id = any (array(
    select o.id
    from /* schema */x_job_events o
    where o.expires_at <= %(before)s::timestamptz and o.expires_at >= %(after)s::timestamptz
    order by o.expires_at
    limit %(limit)s::bigint
    for update skip locked))
  returning e.expires_at
)
select count(*), max(g.expires_at) from gone g;

-- name: outbox
with gone as (
  delete from /* schema */x_outbox b
  where b.id = any (array(
    select o.id
    from /* schema */x_outbox o
    where o.published_at < %(before)s::timestamptz and o.published_at >= %(after)s::timestamptz
    order by o.published_at
    limit %(limit)s::bigint
    for update skip locked))
  returning b.published_at
)
select count(*), max(g.published_at) from gone g;

-- name: counters
-- A bucket that is not folded into the coarser tier stays, however old; the coarsest has none.
with doomed as materialized (
  select c.tier, c.bucket, c.name, c.shard
  from /* schema */x_job_counters c
  where c.tier = %(tier)s::text and c.bucket < %(before)s::timestamptz and c.bucket >= %(after)s::timestamptz
    and (%(coarser)s::text is null or exists (
      select from /* schema */x_job_counters f
      where f.tier = %(coarser)s::text and f.name = c.name
        and f.bucket = date_trunc(%(coarser)s::text, c.bucket, 'UTC')))
  order by c.bucket, c.name, c.shard
  limit %(limit)s::bigint
  for update skip locked
),
gone as (
  delete from /* schema */x_job_counters c
  using doomed d
  where c.tier = d.tier and c.bucket = d.bucket and c.name = d.name and c.shard = d.shard
  returning c.bucket
)
select count(*), max(g.bucket) from gone g;

-- name: workers
with gone as (
  delete from /* schema */x_job_workers w
  where w.id = any (array(
    select o.id
    from /* schema */x_job_workers o
    where o.expires_at <= %(before)s::timestamptz and o.expires_at >= %(after)s::timestamptz
    order by o.expires_at
    limit %(limit)s::bigint
    for update skip locked))
  returning w.expires_at
)
select count(*), max(g.expires_at) from gone g;

-- name: slots
-- One whose job still runs stays: whoever takes it has to end that claim.
with doomed as materialized (
  select l.lease_key, l.slot
  from /* schema */x_job_leases l
  where l.expires_at <= %(before)s::timestamptz and l.expires_at >= %(after)s::timestamptz
    and not exists (select from /* schema */x_jobs j where j.id = l.job_id and j.state || '' = 'running')
  order by l.expires_at
  limit %(limit)s::bigint
  for update skip locked
),
gone as (
  delete from /* schema */x_job_leases l
  using doomed d
  where l.lease_key = d.lease_key and l.slot = d.slot
  returning l.expires_at
)
select count(*), max(g.expires_at) from gone g;

-- name: purges
with gone as (
  delete from /* schema */x_backfills b
  where b.run_id = any (array(
    select o.run_id
    from /* schema */x_backfills o
    where o.kind = 'purge' and o.status in ('done', 'failed', 'cancelled')
      and o.finished_at < %(before)s::timestamptz and o.finished_at >= %(after)s::timestamptz
    order by o.finished_at
    limit %(limit)s::bigint
    for update skip locked))
  returning b.finished_at
)
select count(*), max(g.finished_at) from gone g;

-- name: removable
-- Only the part of the kind that is asked for is executed.
select count(*), min(r.aged_at), max(r.aged_at)
from (
  select j.ended_at as aged_at
  from /* schema */x_jobs j
  where %(part)s::text = 'jobs' and j.ended_as = %(state)s::text and j.ended_at < %(before)s::timestamptz
  union all
  select e.expires_at
  from /* schema */x_job_events e
  where %(part)s::text = 'events' and e.expires_at <= %(before)s::timestamptz
  union all
  select o.published_at
  from /* schema */x_outbox o
  where %(part)s::text = 'outbox' and o.published_at < %(before)s::timestamptz
  union all
  select c.bucket
  from /* schema */x_job_counters c
  where %(part)s::text = 'counters' and c.tier = %(tier)s::text and c.bucket < %(before)s::timestamptz
    and (%(coarser)s::text is null or exists (
      select from /* schema */x_job_counters f
      where f.tier = %(coarser)s::text and f.name = c.name
        and f.bucket = date_trunc(%(coarser)s::text, c.bucket, 'UTC')))
  union all
  select w.expires_at
  from /* schema */x_job_workers w
  where %(part)s::text = 'workers' and w.expires_at <= %(before)s::timestamptz
  union all
  select l.expires_at
  from /* schema */x_job_leases l
  where %(part)s::text = 'slots' and l.expires_at <= %(before)s::timestamptz
    and not exists (select from /* schema */x_jobs j where j.id = l.job_id and j.state || '' = 'running')
  union all
  select b.finished_at
  from /* schema */x_backfills b
  where %(part)s::text = 'purges' and b.kind = 'purge' and b.status in ('done', 'failed', 'cancelled')
    and b.finished_at < %(before)s::timestamptz
) r;
