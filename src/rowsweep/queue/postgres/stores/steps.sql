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

-- name: recorded
-- Outputs travel as text: a replay reads each when it gets there.
select t.name, t.kind, t.status, t.output::text
from /* schema */x_job_steps t
where t.run_id = %(run_id)s::uuid and t.kind <> 'part';

-- name: put
-- The row is written only where the fence landed, which also keeps the job row locked until the commit. The clock is
-- read anew, since steps of one transaction must keep their order. That may idle as with `guard`.
with job as materialized (
  select j.id,
         set_config('idle_in_transaction_session_timeout',
           case current_setting('idle_in_transaction_session_timeout')
             when '0' then least(
               5000 + 1000 * greatest(extract(epoch from j.visible_at - clock_timestamp()), 0), 2147483647)::bigint::text
             else current_setting('idle_in_transaction_session_timeout')
           end, true)
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

-- name: wait
-- What was asked first stays: the instant, the snapshot and the timeout. An event's transaction that the snapshot does
-- not see committed after the question, whatever instant the event has. The clock is the statement's start, which is
-- never later than what the statement can see: no timeout hides an event that came before it. Each part asks one index
-- for one key, or for none, in that index's order: with stale statistics any other would do as well.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
),
asked as materialized (
  select coalesce(b.started_at, statement_timestamp()) as started_at,
         coalesce(b.output ->> 'snapshot', pg_current_snapshot()::text)::pg_snapshot as snapshot,
         coalesce(b.started_at, %(since)s::timestamptz, statement_timestamp()) as since,
         case when b.run_id is null
              then statement_timestamp() + make_interval(secs => %(timeout)s::double precision)
              else b.wake_at end as wake_at
  from (select 1) one
  left join /* schema */x_job_steps b on b.run_id = %(run_id)s::uuid and b.name = %(name)s::text
),
found as materialized (
  select e.published_at,
         jsonb_build_object(
           'id', e.id, 'name', e.name, 'key', e.correlation_key, 'payload', e.payload,
           'published_at', to_char(e.published_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
           'expires_at', to_char(e.expires_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')) as event
  from (
    (select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at
     from /* schema */x_job_events e
     where e.name = %(event)s::text and e.correlation_key = %(key)s::text
       and e.published_at >= (select a.since from asked a) and e.expires_at > statement_timestamp()
     order by e.published_at, e.id
     limit 1)
    union all
    (select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at
     from /* schema */x_job_events e
     where e.name = %(event)s::text and e.correlation_key is null and %(key)s::text is null
       and e.published_at >= (select a.since from asked a) and e.expires_at > statement_timestamp()
     order by e.published_at, e.id
     limit 1)
    union all
    (select e.id, e.name, e.correlation_key, e.payload, e.published_at, e.expires_at
     from /* schema */x_job_events e
     where e.name = %(event)s::text and coalesce(e.correlation_key, '') = coalesce(%(key)s::text, '')
       and e.correlation_key is not distinct from %(key)s::text
       and e.xid >= (select pg_snapshot_xmin(a.snapshot) from asked a)
       and not pg_visible_in_snapshot(e.xid, (select a.snapshot from asked a))
       and e.expires_at > statement_timestamp()
     order by e.xid)
  ) e
  order by e.published_at, e.id
  limit 1
)
insert into /* schema */x_job_steps as t
  (run_id, name, kind, status, output, started_at, completed_at, wake_at, event, correlation_key)
select %(run_id)s::uuid, %(name)s::text, 'event',
       case when f.event is not null then 'done' when a.wake_at <= statement_timestamp() then 'timed-out'
            else 'waiting' end,
       case when f.event is not null then f.event when a.wake_at <= statement_timestamp() then null
            else jsonb_build_object('snapshot', a.snapshot::text) end,
       a.started_at,
       case when f.event is not null or a.wake_at <= statement_timestamp() then clock_timestamp() end,
       a.wake_at, %(event)s::text, %(key)s::text
from job
cross join asked a
left join found f on true
on conflict (run_id, name) do update
set status = excluded.status, output = excluded.output, completed_at = excluded.completed_at, event = excluded.event,
    correlation_key = excluded.correlation_key
returning t.run_id, t.name, t.kind, t.status, t.output, t.attempts, t.error, t.started_at, t.completed_at,
          t.wake_at, t.event, t.correlation_key;

-- name: delete
delete from /* schema */x_job_steps t
where t.run_id = %(run_id)s::uuid and t.name = %(name)s::text
returning t.run_id;

-- name: guard
-- Renewals pass over a locked row, so that its lease lapses at last, and claims pass over it too: a process that is frozen
-- from here on would keep the job from all others. Its transaction may idle for 5 s longer than the lease lasts.
select j.id,
       set_config('idle_in_transaction_session_timeout',
         case current_setting('idle_in_transaction_session_timeout')
           when '0' then least(
             5000 + 1000 * greatest(extract(epoch from j.visible_at - clock_timestamp()), 0), 2147483647)::bigint::text
           else current_setting('idle_in_transaction_session_timeout')
         end, true)
from /* schema */x_jobs j
where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
for no key update;
