-- name: get
select j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
       j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
       j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
       j.updated_at, j.started_at
from /* schema */x_jobs j
where j.id = %(job_id)s::uuid;

-- name: list (planned for its values)
-- Which index serves depends on the filters given; a plan for all values alike would walk one of them to its end.
-- Running rows are found by what claims have listed.
select j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
       j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
       j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
       j.updated_at, j.started_at
from /* schema */x_jobs j
where (%(queue)s::text is null or j.queue = %(queue)s::text)
  and (%(name)s::text is null or j.name = %(name)s::text)
  and (%(state)s::text is null or %(state)s::text in ('ready', 'delayed', 'running', 'suspended')
    or j.ended_as = %(state)s::text)
  and (%(state)s::text is null or %(state)s::text in ('done', 'failed', 'dead', 'cancelled')
    or (j.state = %(state)s::text and j.ended_as is null))
  and (%(state)s::text is distinct from 'running' or j.id = any (array(
    select i.id from /* schema */x_job_claims c cross join lateral unnest(c.jobs) as i (id))))
  and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text)
  and (%(run_id)s::uuid is null or j.run_id = %(run_id)s::uuid)
  and (%(id_from)s::uuid is null or j.id between %(id_from)s::uuid and %(id_to)s::uuid)
  and (%(created_from)s::timestamptz is null or j.created_at >= %(created_from)s::timestamptz)
  and (%(created_to)s::timestamptz is null or j.created_at < %(created_to)s::timestamptz)
  and (%(at)s::timestamptz is null or (j.created_at, j.id) < (%(at)s::timestamptz, %(at_id)s::uuid))
order by j.created_at desc, j.id desc
limit %(limit)s::bigint;

-- name: list_before (planned for its values)
-- The nearest rows in front of a place come first; the caller turns them around.
select j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
       j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
       j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
       j.updated_at, j.started_at
from /* schema */x_jobs j
where (%(queue)s::text is null or j.queue = %(queue)s::text)
  and (%(name)s::text is null or j.name = %(name)s::text)
  and (%(state)s::text is null or %(state)s::text in ('ready', 'delayed', 'running', 'suspended')
    or j.ended_as = %(state)s::text)
  and (%(state)s::text is null or %(state)s::text in ('done', 'failed', 'dead', 'cancelled')
    or (j.state = %(state)s::text and j.ended_as is null))
  and (%(state)s::text is distinct from 'running' or j.id = any (array(
    select i.id from /* schema */x_job_claims c cross join lateral unnest(c.jobs) as i (id))))
  and (%(tenant_id)s::text is null or j.tenant_id = %(tenant_id)s::text)
  and (%(run_id)s::uuid is null or j.run_id = %(run_id)s::uuid)
  and (%(id_from)s::uuid is null or j.id between %(id_from)s::uuid and %(id_to)s::uuid)
  and (%(created_from)s::timestamptz is null or j.created_at >= %(created_from)s::timestamptz)
  and (%(created_to)s::timestamptz is null or j.created_at < %(created_to)s::timestamptz)
  and (j.created_at, j.id) > (%(at)s::timestamptz, %(at_id)s::uuid)
order by j.created_at, j.id
limit %(limit)s::bigint;

-- name: dead_letters
select j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
       j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
       j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
       j.updated_at, j.started_at
from /* schema */x_jobs j
where j.ended_as = 'dead'
order by j.ended_at desc, j.id desc
limit %(limit)s::bigint;

-- name: undeclared
select j.queue, j.name, count(*)
from /* schema */x_jobs j
where j.ended_as is null and j.state in ('ready', 'delayed', 'suspended') and j.name <> all (%(names)s::text[])
  and not exists (
    select from /* schema */x_job_workers w
    where w.expires_at > now() and j.name = any (w.names))
group by j.queue, j.name
order by j.queue, j.name;
