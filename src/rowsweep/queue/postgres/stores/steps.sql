-- name: get
select t.run_id, t.name, t.kind, t.status, t.output, t.attempts, t.error, t.started_at, t.completed_at, t.wake_at,
       t.event, t.correlation_key
from /* schema */x_job_steps t
where t.run_id = %(run_id)s::uuid and t.name = %(name)s::text;

-- name: list
select t.run_id, t.name, t.kind, t.status, t.output, t.attempts, t.error, t.started_at, t.completed_at, t.wake_at,
       t.event, t.correlation_key
from /* schema */x_job_steps t
where t.run_id = %(run_id)s::uuid and (%(kinds)s::text[] is null or t.kind = any (%(kinds)s::text[]))
order by t.started_at, t.name;

-- name: put
-- The row is written only where the fence landed, which also keeps the job row locked until the commit. The clock is
-- read anew, since steps of one transaction must keep their order.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
)
insert into /* schema */x_job_steps as t
  (run_id, name, kind, status, output, attempts, error, started_at, completed_at)
select %(run_id)s::uuid, %(name)s::text, %(kind)s::text, %(status)s::text, %(output)s::jsonb,
       case when %(status)s::text = 'failed' then 1 else 0 end, %(error)s::text, clock_timestamp(),
       case when %(status)s::text = 'waiting' then null else clock_timestamp() end
from job
on conflict (run_id, name) do update
set kind = excluded.kind, status = excluded.status, output = excluded.output,
    attempts = t.attempts + excluded.attempts, error = excluded.error, completed_at = excluded.completed_at
returning t.run_id, t.name, t.kind, t.status, t.output, t.attempts, t.error, t.started_at, t.completed_at,
          t.wake_at, t.event, t.correlation_key;

-- name: sleep
-- Asked again it keeps its instant, and is over once that has passed on this clock.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
),
clock as materialized (
  select clock_timestamp() as read_at
)
insert into /* schema */x_job_steps as t (run_id, name, kind, status, started_at, completed_at, wake_at)
select %(run_id)s::uuid, %(name)s::text, 'sleep',
       case when %(seconds)s::double precision > 0 then 'waiting' else 'done' end, c.read_at,
       case when %(seconds)s::double precision > 0 then null else c.read_at end,
       c.read_at + make_interval(secs => %(seconds)s::double precision)
from job
cross join clock c
on conflict (run_id, name) do update
set status = case when t.wake_at <= excluded.started_at then 'done' else t.status end,
    completed_at = coalesce(t.completed_at, case when t.wake_at <= excluded.started_at then excluded.started_at end)
returning t.run_id, t.name, t.kind, t.status, t.output, t.attempts, t.error, t.started_at, t.completed_at,
          t.wake_at, t.event, t.correlation_key;

-- name: delete
delete from /* schema */x_job_steps t
where t.run_id = %(run_id)s::uuid and t.name = %(name)s::text
returning t.run_id;

-- name: guard
select j.id
from /* schema */x_jobs j
where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
for no key update;
