-- name: pause
-- Paused again it stays as it was, and answers so.
insert into /* schema */x_job_pauses as p (queue, name, paused_at, paused_by, reason)
values (%(queue)s::text, %(name)s::text, statement_timestamp(), %(by)s::text, %(reason)s::text)
on conflict (coalesce(queue, ''), coalesce(name, '')) do update
set paused_at = p.paused_at
returning p.queue, p.name, p.paused_at, p.paused_by, p.reason;

-- name: resume
delete from /* schema */x_job_pauses p
where p.queue is not distinct from %(queue)s::text and p.name is not distinct from %(name)s::text
returning p.paused_at;

-- name: list
select p.queue, p.name, p.paused_at, p.paused_by, p.reason
from /* schema */x_job_pauses p
order by p.paused_at, p.queue, p.name;
