-- name: publish
-- Makes the parked runs due in the same statement. A run still on its way to park shows by its own `run_at` that it
-- was woken. Its state is asked in a form that no partial index matches, as in claim.
with clock as materialized (
  select clock_timestamp() as read_at
),
event as (
  insert into /* schema */x_job_events (id, name, correlation_key, payload, published_at, expires_at)
  select %(id)s::uuid, %(name)s::text, %(key)s::text, %(payload)s::jsonb, c.read_at,
         c.read_at + make_interval(secs => %(ttl)s::double precision)
  from clock c
  returning id, name, correlation_key, payload, published_at, expires_at
),
waiting as materialized (
  select t.run_id
  from /* schema */x_job_steps t
  where t.status = 'waiting' and t.event = %(name)s::text and t.correlation_key = %(key)s::text
  union
  select t.run_id
  from /* schema */x_job_steps t
  where t.status = 'waiting' and t.event = %(name)s::text and t.correlation_key is null and %(key)s::text is null
),
parked as materialized (
  select j.id
  from waiting w
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.run_id = w.run_id and j.state || '' in ('suspended', 'running')
    offset 0
  ) j
  order by j.id
),
locked as materialized (
  select l.id, l.queue, l.state
  from parked p
  cross join lateral (
    select j.id, j.queue, j.state
    from /* schema */x_jobs j
    where j.id = p.id and (j.state || '' = 'running' or (j.state || '' = 'suspended' and j.run_at > statement_timestamp()))
    offset 0
    for no key update skip locked
  ) l
),
woken as (
  update /* schema */x_jobs j
  set run_at = c.read_at, updated_at = now()
  from locked l
  cross join clock c
  where j.id = any (array[l.id])
  returning l.queue, l.state
),
due as materialized (
  select array(select w.queue from woken w where w.state = 'suspended' group by w.queue order by w.queue) as queues
)
select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at, d.queues,
       (select count(pg_notify('rowsweep_wake', q.queue)) from unnest(d.queues) as q (queue))
from event e
cross join due d;

-- name: find
select f.id, f.name, f.correlation_key, f.payload, f.published_at, f.expires_at
from (
  (select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at
   from /* schema */x_job_events e
   where e.name = %(name)s::text and e.correlation_key = %(key)s::text
     and e.published_at >= %(since)s::timestamptz and e.expires_at > clock_timestamp()
   order by e.published_at, e.id
   limit 1)
  union all
  (select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at
   from /* schema */x_job_events e
   where e.name = %(name)s::text and e.correlation_key is null and %(key)s::text is null
     and e.published_at >= %(since)s::timestamptz and e.expires_at > clock_timestamp()
   order by e.published_at, e.id
   limit 1)
) f;

-- name: list
select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at
from /* schema */x_job_events e
where (%(name)s::text is null or e.name = %(name)s::text)
  and (%(key)s::text is null or e.correlation_key = %(key)s::text) and e.expires_at > clock_timestamp()
order by e.published_at desc, e.id desc
limit %(limit)s::bigint;

-- name: purge_expired
-- A bounded part at a time, so that no statement holds many rows for long.
with gone as (
  delete from /* schema */x_job_events e
  where e.id = any (array(
    select o.id
    from /* schema */x_job_events o
    where o.expires_at <= coalesce(%(at)s::timestamptz, clock_timestamp())
    order by o.expires_at
    limit %(limit)s::bigint
    for update skip locked))
  returning e.id
)
select count(*) from gone;

-- name: now
select clock_timestamp();
