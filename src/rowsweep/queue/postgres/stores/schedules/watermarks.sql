-- name: last_fired_at
select s.watermark
from /* schema */x_scheduler_state s
where s.task = %(task)s::text;

-- name: watermarks
select s.task, s.watermark
from /* schema */x_scheduler_state s;

-- name: mark_fired
insert into /* schema */x_scheduler_state (task, watermark, updated_at)
values (%(task)s::text, %(at)s::timestamptz, now())
on conflict (task) do nothing
returning watermark;

-- name: fire
-- The watermark's update is the fence: a second dispatcher waits for the row, finds it moved, and inserts nothing.
with moved as (
  update /* schema */x_scheduler_state s
  set watermark = greatest(%(watermark)s::timestamptz, %(occurrence)s::timestamptz), updated_at = now()
  where s.task = %(task)s::text and s.watermark < %(occurrence)s::timestamptz
    and s.watermark = coalesce(%(former)s::timestamptz, s.watermark)
  returning s.task
),
inserted as (
  insert into /* schema */x_jobs
    (id, name, queue, priority, state, input, idempotency_key, tenant_id, concurrency_key, run_id, max_attempts,
     run_at, traceparent, enqueued_by)
  select n.id, n.name, n.queue, n.priority, case when n.due > statement_timestamp() then 'delayed' else 'ready' end,
         n.input::jsonb, n.idempotency_key, n.tenant_id, n.concurrency_key, n.run_id, n.max_attempts,
         n.due, n.traceparent, n.enqueued_by
  from (
    select u.id, u.name, u.queue, u.priority, u.input, u.idempotency_key, u.tenant_id, u.concurrency_key, u.run_id,
           u.max_attempts, u.traceparent, u.enqueued_by, u.position,
           coalesce(u.run_at, statement_timestamp() + make_interval(secs => coalesce(u.delay, 0))) as due
    from unnest(
      %(id)s::uuid[], %(name)s::text[], %(queue)s::text[], %(priority)s::smallint[], %(input)s::text[],
      %(idempotency_key)s::text[], %(tenant_id)s::text[], %(concurrency_key)s::text[], %(run_id)s::uuid[],
      %(max_attempts)s::integer[], %(run_at)s::timestamptz[], %(delay)s::double precision[],
      %(traceparent)s::text[], %(enqueued_by)s::text[]
    ) with ordinality as u (
      id, name, queue, priority, input, idempotency_key, tenant_id, concurrency_key, run_id, max_attempts, run_at,
      delay, traceparent, enqueued_by, position)
  ) n
  cross join moved m
  order by n.name, coalesce(n.tenant_id, ''), n.idempotency_key, n.position
  on conflict (name, (coalesce(tenant_id, '')), idempotency_key)
    where ended_as is null
    do nothing
  returning id, state, queue, run_at
),
woken as materialized (
  select count(pg_notify('rowsweep_wake', q.queue)) as queues
  from (select distinct i.queue from inserted i where i.run_at < now() + interval '30 seconds') q
)
select i.id, i.state
from moved m
join woken w on w.queues >= 0
left join inserted i on true;
