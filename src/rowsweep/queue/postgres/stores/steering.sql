-- name: cancel
-- A finished row is left as it ended; the ledger row moves with the job it reads. `|| ''` keeps the plan on the
-- primary key: a partial index of live rows looks empty to stale statistics.
with stopped as (
  update /* schema */x_jobs j
  set state = 'cancelled', claimed_by = null, visible_at = null,
      last_error = coalesce(%(reason)s::text, j.last_error),
      last_error_code = case when %(reason)s::text is null then j.last_error_code end,
      stop_reason = 'cancelled', updated_at = now()
  where j.id = %(job_id)s::uuid and j.state || '' in ('ready', 'delayed', 'running', 'suspended')
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id,
            j.concurrency_key, j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at,
            j.run_at, j.progress, j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent,
            j.enqueued_by, j.created_at, j.updated_at, j.started_at
),
ledger as (
  update /* schema */x_backfills b
  set wanted = 'cancel', status = 'cancelled', waiting_for = null,
      last_error = coalesce(s.last_error, b.last_error),
      last_error_code = case when s.last_error is null then b.last_error_code else s.last_error_code end,
      finished_at = now(), updated_at = now()
  from stopped s
  where b.run_id = s.run_id and b.status in ('running', 'paused')
)
select s.id, s.name, s.queue, s.priority, s.state, s.input, s.idempotency_key, s.tenant_id, s.concurrency_key,
       s.run_id, s.attempt, s.max_attempts, s.claims, s.claimed_by, s.visible_at, s.run_at, s.progress,
       s.result, s.last_error, s.last_error_code, s.stop_reason, s.traceparent, s.enqueued_by, s.created_at,
       s.updated_at, s.started_at
from stopped s;

-- name: find
select j.state, j.name, j.tenant_id, j.idempotency_key, j.run_id
from /* schema */x_jobs j
where j.id = %(job_id)s::uuid
for no key update;

-- name: find_step
select exists (select from /* schema */x_job_steps t where t.run_id = %(run_id)s::uuid and t.name = %(name)s::text),
       (select count(*) from /* schema */x_jobs j where j.run_id = %(run_id)s::uuid);

-- name: step_names
select t.name
from /* schema */x_job_steps t
where t.run_id = %(run_id)s::uuid
order by t.started_at, t.name;

-- name: requeue
-- Keeps to the primary key as in cancel.
with due as (
  update /* schema */x_jobs j
  set state = 'ready', attempt = 0, run_at = now(), last_error = null, last_error_code = null, stop_reason = null,
      updated_at = now()
  where j.id = %(job_id)s::uuid and j.state || '' in ('done', 'failed', 'dead', 'cancelled')
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id,
            j.concurrency_key, j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at,
            j.run_at, j.progress, j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent,
            j.enqueued_by, j.created_at, j.updated_at, j.started_at
),
dropped as (
  delete from /* schema */x_job_steps t
  using due d, /* schema */x_job_steps f
  where t.run_id = d.run_id and f.run_id = d.run_id and f.name = %(from_step)s::text
    and (t.started_at, t.name) >= (f.started_at, f.name)
  returning t.run_id
),
ledger as (
  update /* schema */x_backfills b
  set wanted = 'run', status = 'running', waiting_for = null, last_error = null, last_error_code = null,
      finished_at = null, updated_at = now()
  from due d
  where b.run_id = d.run_id and (select count(*) from dropped) >= 0
)
select d.id, d.name, d.queue, d.priority, d.state, d.input, d.idempotency_key, d.tenant_id, d.concurrency_key,
       d.run_id, d.attempt, d.max_attempts, d.claims, d.claimed_by, d.visible_at, d.run_at, d.progress,
       d.result, d.last_error, d.last_error_code, d.stop_reason, d.traceparent, d.enqueued_by, d.created_at,
       d.updated_at, d.started_at
from due d
where (select count(pg_notify('rowsweep_wake', q.queue)) from due q) > 0;

-- name: remove
-- A run's steps go with the last of its jobs, a later shard's own with its job; the ledger row stays, and ends where
-- nothing can go on with it.
with gone as (
  delete from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.state <> 'running'
  returning j.id, j.run_id, substring(j.concurrency_key from ':s[0-9]{2}$') as suffix
),
last as materialized (
  select g.run_id
  from gone g
  where not exists (select from /* schema */x_jobs o where o.run_id = g.run_id and o.id <> g.id)
),
steps as (
  delete from /* schema */x_job_steps t
  using gone g
  where t.run_id = g.run_id
    and (right(t.name, length(g.suffix)) = g.suffix or exists (select from last))
  returning t.run_id
),
ledger as (
  update /* schema */x_backfills b
  set wanted = 'cancel', status = 'cancelled', waiting_for = null, finished_at = now(), updated_at = now()
  from last
  where b.run_id = last.run_id and b.status in ('running', 'paused') and (select count(*) from steps) >= 0
)
select g.id
from gone g;

-- name: promote
-- Keeps to the primary key as in cancel. Asks the clock as it is: what another call has just made due lies behind the
-- beginning of this one's transaction.
with due as (
  update /* schema */x_jobs j
  set state = 'ready', run_at = now(), updated_at = now()
  where j.id = %(job_id)s::uuid and j.state || '' in ('ready', 'delayed') and j.run_at > clock_timestamp()
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id,
            j.concurrency_key, j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at,
            j.run_at, j.progress, j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent,
            j.enqueued_by, j.created_at, j.updated_at, j.started_at
)
select d.id, d.name, d.queue, d.priority, d.state, d.input, d.idempotency_key, d.tenant_id, d.concurrency_key,
       d.run_id, d.attempt, d.max_attempts, d.claims, d.claimed_by, d.visible_at, d.run_at, d.progress,
       d.result, d.last_error, d.last_error_code, d.stop_reason, d.traceparent, d.enqueued_by, d.created_at,
       d.updated_at, d.started_at
from due d
where (select count(pg_notify('rowsweep_wake', q.queue)) from due q) > 0;

-- name: waits
select j.state, j.run_at > clock_timestamp()
from /* schema */x_jobs j
where j.id = %(job_id)s::uuid;

-- name: requeue_many (planned for its values)
-- Of rows with one key the oldest stands for all, so that no two of them come to life. The lateral lock under the limit
-- takes no more rows than are moved, and passes over those that another call has. Whether a key is live is asked key by
-- key behind `offset 0`: joined, a planner that believes live rows to be few would read all of them for each. Rows come
-- to life in the order of their keys, as enqueues put theirs in, so that the two cannot deadlock.
with oldest as materialized (
  select distinct on (j.name, coalesce(j.tenant_id, ''), j.idempotency_key)
         j.id, j.updated_at, j.name, coalesce(j.tenant_id, '') as tenant, j.idempotency_key
  from /* schema */x_jobs j
  where j.ended_as is not null
    and (%(state)s::text is null or j.ended_as = %(state)s::text)
    and (%(queue)s::text is null or j.queue = %(queue)s::text)
    and (%(name)s::text is null or j.name = %(name)s::text)
    and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text)
  order by j.name, coalesce(j.tenant_id, ''), j.idempotency_key, j.created_at, j.id
),
chosen as materialized (
  select f.id, f.name, f.tenant, f.idempotency_key
  from (select f.id, f.name, f.tenant, f.idempotency_key from oldest f order by f.updated_at, f.id) f
  left join lateral (
    select true as live
    from /* schema */x_jobs o
    where o.name = f.name and coalesce(o.tenant_id, '') = f.tenant and o.idempotency_key = f.idempotency_key
      and o.ended_as is null
    offset 0
  ) holder on true
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = f.id and holder.live is null and j.state || '' in ('done', 'failed', 'dead', 'cancelled')
      and (%(state)s::text is null or j.state || '' = %(state)s::text)
    offset 0
    for no key update skip locked
  ) l
  limit %(limit)s::bigint
),
due as (
  update /* schema */x_jobs j
  set state = 'ready', attempt = 0, run_at = now(), last_error = null, last_error_code = null, stop_reason = null,
      updated_at = now()
  from (select c.id from chosen c order by c.name, c.tenant, c.idempotency_key) c
  where j.id = any (array[c.id])
  returning j.queue, j.run_id
),
runs as materialized (
  select b.run_id
  from /* schema */x_backfills b
  where b.run_id = any (array(select d.run_id from due d))
  order by b.run_id
  for no key update
),
ledger as (
  update /* schema */x_backfills b
  set wanted = 'run', status = 'running', waiting_for = null, last_error = null, last_error_code = null,
      finished_at = null, updated_at = now()
  from runs r
  where b.run_id = any (array[r.run_id])
)
select count(*), (select count(pg_notify('rowsweep_wake', q.queue)) from (select distinct d.queue from due d) q)
from due;

-- name: count_requeueable (planned for its values)
select count(*)
from (
  select j.name, coalesce(j.tenant_id, '') as tenant, j.idempotency_key
  from /* schema */x_jobs j
  where j.ended_as is not null
    and (%(state)s::text is null or j.ended_as = %(state)s::text)
    and (%(queue)s::text is null or j.queue = %(queue)s::text)
    and (%(name)s::text is null or j.name = %(name)s::text)
    and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text)
  group by j.name, coalesce(j.tenant_id, ''), j.idempotency_key
) f
left join lateral (
  select true as live
  from /* schema */x_jobs o
  where o.name = f.name and coalesce(o.tenant_id, '') = f.tenant and o.idempotency_key = f.idempotency_key
    and o.ended_as is null
  offset 0
) holder on true
where holder.live is null;

-- name: remove_many (planned for its values)
-- As remove, for the rows that are longest as they are.
with chosen as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.state <> 'running'
    and (%(state)s::text is null or %(state)s::text in ('ready', 'delayed', 'suspended')
      or j.ended_as = %(state)s::text)
    and (%(state)s::text is null or %(state)s::text in ('done', 'failed', 'dead', 'cancelled')
      or (j.state = %(state)s::text and j.ended_as is null))
    and (%(queue)s::text is null or j.queue = %(queue)s::text)
    and (%(name)s::text is null or j.name = %(name)s::text)
    and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text)
  order by j.ended_as, j.ended_at, case when %(state)s::text in ('done', 'failed', 'dead', 'cancelled') then null
             else j.updated_at end, j.id
  limit %(limit)s::bigint
  for update skip locked
),
gone as (
  delete from /* schema */x_jobs j
  using chosen c
  where j.id = any (array[c.id])
  returning j.run_id, substring(j.concurrency_key from ':s[0-9]{2}$') as suffix
),
last as materialized (
  select g.run_id
  from (select g.run_id, count(*) as jobs from gone g group by g.run_id) g
  where g.jobs = (select count(*) from /* schema */x_jobs o where o.run_id = g.run_id)
),
steps as (
  delete from /* schema */x_job_steps t
  using gone g
  where t.run_id = any (array[g.run_id])
    and (right(t.name, length(g.suffix)) = g.suffix or exists (select from last where last.run_id = g.run_id))
  returning t.run_id
),
runs as materialized (
  select b.run_id
  from /* schema */x_backfills b
  where b.run_id = any (array(select last.run_id from last)) and b.status in ('running', 'paused')
    and (select count(*) from steps) >= 0
  order by b.run_id
  for no key update
),
ledger as (
  update /* schema */x_backfills b
  set wanted = 'cancel', status = 'cancelled', waiting_for = null, finished_at = now(), updated_at = now()
  from runs r
  where b.run_id = any (array[r.run_id])
)
select count(*)
from gone;

-- name: count_removable (planned for its values)
select count(*)
from /* schema */x_jobs j
where j.state <> 'running'
  and (%(state)s::text is null or %(state)s::text in ('ready', 'delayed', 'suspended')
    or j.ended_as = %(state)s::text)
  and (%(state)s::text is null or %(state)s::text in ('done', 'failed', 'dead', 'cancelled')
    or (j.state = %(state)s::text and j.ended_as is null))
  and (%(queue)s::text is null or j.queue = %(queue)s::text)
  and (%(name)s::text is null or j.name = %(name)s::text)
  and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text);

-- name: promote_many (planned for its values)
with chosen as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.ended_as is null and j.state in ('ready', 'delayed') and j.run_at > clock_timestamp()
    and (%(state)s::text is null or j.state = %(state)s::text)
    and (%(queue)s::text is null or j.queue = %(queue)s::text)
    and (%(name)s::text is null or j.name = %(name)s::text)
    and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text)
  order by j.queue, j.name, j.priority desc, j.run_at, j.id
  limit %(limit)s::bigint
  for no key update skip locked
),
due as (
  update /* schema */x_jobs j
  set state = 'ready', run_at = now(), updated_at = now()
  from chosen c
  where j.id = any (array[c.id])
  returning j.queue
)
select count(*), (select count(pg_notify('rowsweep_wake', q.queue)) from (select distinct d.queue from due d) q)
from due;

-- name: count_promotable (planned for its values)
select count(*)
from /* schema */x_jobs j
where j.ended_as is null and j.state in ('ready', 'delayed') and j.run_at > clock_timestamp()
  and (%(state)s::text is null or j.state = %(state)s::text)
  and (%(queue)s::text is null or j.queue = %(queue)s::text)
  and (%(name)s::text is null or j.name = %(name)s::text)
  and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text);
