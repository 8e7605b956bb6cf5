-- name: pause
-- Paused again it stays as it was, and answers so.
insert into /* schema */x_job_pauses as p (queue, name, paused_at, paused_by, reason)
values (%(queue)s::text, %(name)s::text, statement_timestamp(), %(by)s::text, %(reason)s::text)
on conflict (coalesce(queue, ''), coalesce(name, '')) do update
set paused_at = p.paused_at
returning p.queue, p.name, p.paused_at, p.paused_by, p.reason;

-- name: resume
-- Wakes the queue, or for a name alone every queue that a worker with that name claims from.
with gone as (
  delete from /* schema */x_job_pauses p
  where p.queue is not distinct from %(queue)s::text and p.name is not distinct from %(name)s::text
  returning p.queue, p.name
),
queues as (
  select g.queue
  from gone g
  where g.queue is not null
  union
  select u.queue
  from gone g
  join /* schema */x_job_workers w on g.name = any (w.names) and w.expires_at > now()
  cross join lateral unnest(w.queues) as u (queue)
  where g.queue is null
)
select count(*), (select count(pg_notify('rowsweep_wake', q.queue)) from queues q)
from gone g;

-- name: list
select p.queue, p.name, p.paused_at, p.paused_by, p.reason
from /* schema */x_job_pauses p
order by p.paused_at, p.queue, p.name;
