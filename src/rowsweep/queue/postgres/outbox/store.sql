-- name: stage
-- Said once on the wake, however many rows: it is heard with the commit that makes them exist.
with staged as (
  insert into /* schema */x_outbox
    (id, name, queue, priority, input, idempotency_key, tenant_id, concurrency_key, run_id, max_attempts, run_at,
     traceparent, enqueued_by)
  select u.id, u.name, u.queue, u.priority, u.input::jsonb, u.idempotency_key, u.tenant_id, u.concurrency_key,
         u.run_id, u.max_attempts, coalesce(u.run_at, statement_timestamp() + make_interval(secs => u.delay)),
         u.traceparent, u.enqueued_by
  from unnest(
    %(id)s::uuid[], %(name)s::text[], %(queue)s::text[], %(priority)s::smallint[], %(input)s::text[],
    %(idempotency_key)s::text[], %(tenant_id)s::text[], %(concurrency_key)s::text[], %(run_id)s::uuid[],
    %(max_attempts)s::integer[], %(run_at)s::timestamptz[], %(delay)s::double precision[],
    %(traceparent)s::text[], %(enqueued_by)s::text[]
  ) with ordinality as u (
    id, name, queue, priority, input, idempotency_key, tenant_id, concurrency_key, run_id, max_attempts, run_at,
    delay, traceparent, enqueued_by, position)
  order by u.position
  returning id
)
select count(s.id), (select count(pg_notify('rowsweep_wake', '*outbox')))
from staged s;

-- name: claim
-- A row is found by the index of what is pending, and leased through its primary key. The last columns are the same in
-- every row: when the next one falls due and in how many seconds, asked only where this pass took all there was.
with taken as materialized (
  select o.id
  from /* schema */x_outbox o
  where o.published_at is null and o.dead_at is null
    and (o.lease_until is null or o.lease_until <= statement_timestamp())
  order by o.id
  limit %(limit)s::bigint
  for update skip locked
),
leased as (
  update /* schema */x_outbox o
  set claimed_by = %(relay)s::text,
      lease_until = statement_timestamp() + make_interval(secs => %(lease)s::double precision)
  where o.id = any (array(select t.id from taken t))
  returning o.id, o.name, o.queue, o.priority, o.input, o.idempotency_key, o.tenant_id, o.concurrency_key, o.run_id,
    o.max_attempts, o.run_at, o.traceparent, o.enqueued_by, o.created_at, o.claimed_by, o.lease_until, o.attempts,
    o.last_error, o.published_at, o.dead_at
),
said as materialized (
  select count(pg_notify('rowsweep_wake', %(proof)s::text)) as words
  where %(proof)s::text is not null
)
select l.id, l.name, l.queue, l.priority, l.input, l.idempotency_key, l.tenant_id, l.concurrency_key, l.run_id,
       l.max_attempts, l.run_at, l.traceparent, l.enqueued_by, l.created_at, l.claimed_by, l.lease_until, l.attempts,
       l.last_error, l.published_at, l.dead_at,
       once.next_at, extract(epoch from once.next_at - statement_timestamp())::double precision
from (
  select s.words,
    case when (select count(*) from taken) < %(limit)s::bigint then (
      select min(w.lease_until)
      from /* schema */x_outbox w
      where w.published_at is null and w.dead_at is null and w.lease_until > statement_timestamp()
    ) end as next_at
  from said s
) once
left join leased l on true
order by l.id;

-- name: publish
-- A relay that is frozen before it commits would keep the rows from all others.
with once as materialized (
  select set_config('idle_in_transaction_session_timeout', '30s', true) as setting
)
update /* schema */x_outbox o
set published_at = statement_timestamp(), claimed_by = null, lease_until = null
from once
where o.id = any (%(id)s::uuid[]) and o.claimed_by = %(relay)s::text and o.published_at is null
returning o.id;

-- name: refuse
update /* schema */x_outbox o
set attempts = o.attempts + 1,
    last_error = %(error)s::text,
    claimed_by = null,
    lease_until = case when o.attempts + 1 < %(attempts)s::integer
                       then statement_timestamp() + make_interval(secs => %(delay)s::double precision) end,
    dead_at = case when o.attempts + 1 >= %(attempts)s::integer then statement_timestamp() end
where o.id = %(id)s::uuid and o.claimed_by = %(relay)s::text and o.published_at is null
returning o.id, o.name, o.queue, o.priority, o.input, o.idempotency_key, o.tenant_id, o.concurrency_key, o.run_id,
  o.max_attempts, o.run_at, o.traceparent, o.enqueued_by, o.created_at, o.claimed_by, o.lease_until, o.attempts,
  o.last_error, o.published_at, o.dead_at;

-- name: release
-- Not said on the wake: a relay that cannot publish would wake itself.
update /* schema */x_outbox o
set claimed_by = null, lease_until = null
where o.id = any (%(id)s::uuid[]) and o.claimed_by = %(relay)s::text and o.published_at is null
returning o.id;

-- name: list
select o.id, o.name, o.queue, o.priority, o.input, o.idempotency_key, o.tenant_id, o.concurrency_key, o.run_id,
       o.max_attempts, o.run_at, o.traceparent, o.enqueued_by, o.created_at, o.claimed_by, o.lease_until, o.attempts,
       o.last_error, o.published_at, o.dead_at
from /* schema */x_outbox o
where case %(status)s::text
        when 'published' then o.published_at is not null
        when 'dead' then o.published_at is null and o.dead_at is not null
        when 'pending' then o.published_at is null and o.dead_at is null
        else true
      end
order by o.id desc
limit %(limit)s::bigint;

-- name: retry
with moved as (
  update /* schema */x_outbox o
  set attempts = 0, dead_at = null, lease_until = null
  where o.published_at is null
    and case when %(id)s::uuid[] is null then o.dead_at is not null
             else o.id = any (%(id)s::uuid[]) and o.claimed_by is null end
  returning o.id
),
said as materialized (
  select count(pg_notify('rowsweep_wake', '*outbox')) as words
  from (select m.id from moved m limit 1) once
)
select m.id
from moved m
join said s on s.words >= 0
order by m.id;

-- name: backlog
select count(*) filter (where o.dead_at is null),
       extract(epoch from statement_timestamp() - min(o.created_at) filter (where o.dead_at is null))::double precision,
       count(*) filter (where o.dead_at is not null)
from /* schema */x_outbox o
where o.published_at is null;
