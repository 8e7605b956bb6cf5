-- name: enqueue
-- Rows go in ordered by their unique key, so that two bulk enqueues cannot deadlock. What falls due before an idle
-- worker would look again wakes, once for each queue.
with inserted as (
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
from inserted i
join woken w on w.queues >= 0;

-- name: enqueue_one (prepared at once)
-- What most enqueues are, in half of the time that arrays take.
with inserted as (
  insert into /* schema */x_jobs
    (id, name, queue, priority, state, input, idempotency_key, tenant_id, concurrency_key, run_id, max_attempts,
     run_at, traceparent, enqueued_by)
  select %(id)s::uuid, %(name)s::text, %(queue)s::text, %(priority)s::smallint,
         case when n.due > statement_timestamp() then 'delayed' else 'ready' end, %(input)s::text::jsonb,
         %(idempotency_key)s::text, %(tenant_id)s::text, %(concurrency_key)s::text, %(run_id)s::uuid,
         %(max_attempts)s::integer, n.due, %(traceparent)s::text, %(enqueued_by)s::text
  from (
    select coalesce(%(run_at)s::timestamptz, statement_timestamp()
                    + make_interval(secs => coalesce(%(delay)s::double precision, 0))) as due
  ) n
  on conflict (name, (coalesce(tenant_id, '')), idempotency_key)
    where ended_as is null
    do nothing
  returning id, state, queue, run_at
)
select i.id, i.state,
       case when i.run_at < now() + interval '30 seconds' then pg_notify('rowsweep_wake', i.queue) end
from inserted i;

-- name: enqueue_unkeyed
-- Jobs that nobody can have enqueued before: without a conflict to look for, an insert takes four fifths of the time.
with inserted as (
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
  order by n.position
  returning id, state, queue, run_at
),
woken as materialized (
  select count(pg_notify('rowsweep_wake', q.queue)) as queues
  from (select distinct i.queue from inserted i where i.run_at < now() + interval '30 seconds') q
)
select i.id, i.state
from inserted i
join woken w on w.queues >= 0;

-- name: enqueue_copied
-- Jobs that nobody can have enqueued before, a thousand in a statement, at a third less of the server's time.
copy /* schema */x_jobs
  (id, run_id, input, idempotency_key, name, queue, priority, state, max_attempts, run_at, tenant_id,
   concurrency_key, traceparent, enqueued_by)
from stdin (format binary);

-- name: instant
-- When jobs that are copied are due, as the format has it: in microseconds since 2000.
select (extract(epoch from statement_timestamp()) * 1000000)::bigint - 946684800000000;

-- name: wake
select count(pg_notify('rowsweep_wake', q.queue))
from unnest(%(queues)s::text[]) as q (queue);

-- name: find_live_by_key
-- A statement of its own, because the conflicting row may be newer than the insert's snapshot.
select w.position, j.id, j.run_id, j.state
from unnest(%(name)s::text[], %(tenant_id)s::text[], %(idempotency_key)s::text[]) with ordinality
       as w (name, tenant_id, idempotency_key, position)
cross join lateral (
  select j.id, j.run_id, j.state
  from /* schema */x_jobs j
  where j.name = w.name and coalesce(j.tenant_id, '') = coalesce(w.tenant_id, '')
    and j.idempotency_key = w.idempotency_key and j.ended_as is null
  offset 0
) j
order by w.position;

-- name: claim
-- Seeks the index by name and priority, so that delayed, paused and undeclared rows cost nothing; no more rows of a
-- name, or of a key, than their caps have room for. The lateral lock under the outer limit never locks more rows than
-- it hands out. Its state is asked in a form that no partial index matches: with stale statistics an index of live
-- rows looks empty, and would be walked for every row. A pass that is given starts begins each level there, behind
-- rows passed over before, and seeks only levels above; it answers where the next one may begin, with a second's
-- margin for commits under way.
with recursive names as materialized (
  select n.name, n.room, n.key_room
  from unnest(%(names)s::text[], %(rooms)s::bigint[], %(key_rooms)s::bigint[]) as n (name, room, key_room)
  where n.room is distinct from 0 and not exists (
    select from /* schema */x_job_pauses p
    where (p.queue is null or p.queue = %(queue)s::text) and (p.name is null or p.name = n.name))
),
known as materialized (
  select s.name, s.priority, s.run_at, s.id
  from jsonb_to_recordset(%(starts)s::jsonb) as s (name text, priority smallint, run_at timestamptz, id uuid)
  join names n on n.name = s.name
),
higher (name, priority, above) as (
  select n.name, l.priority, t.above
  from names n
  cross join lateral (select coalesce(max(k.priority), (-32768)::smallint) as above from known k where k.name = n.name) t
  cross join lateral (
    select j.priority
    from /* schema */x_jobs j
    where j.queue = %(queue)s::text and j.name = n.name and j.priority > t.above
      and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended')
    order by j.priority desc
    limit 1
  ) l
  union all
  select h.name, l.priority, h.above
  from higher h
  cross join lateral (
    select j.priority
    from /* schema */x_jobs j
    where j.queue = %(queue)s::text and j.name = h.name and j.priority < h.priority and j.priority > h.above
      and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended')
    order by j.priority desc
    limit 1
  ) l
),
levels as materialized (
  select h.name, h.priority, timestamptz '0001-01-01 00:00:00+00' as run_at,
         uuid '00000000-0000-0000-0000-000000000000' as id
  from higher h
  union all
  select k.name, k.priority, k.run_at, k.id
  from known k
),
within as materialized (
  select d.id, v.name, d.concurrency_key, v.priority, d.run_at, n.key_room
  from levels v
  join names n on n.name = v.name
  cross join lateral (
    select f.id, f.concurrency_key, f.run_at
    from (
      select j.id, j.concurrency_key, j.run_at
      from /* schema */x_jobs j
      where j.queue = %(queue)s::text and j.name = v.name and j.priority = v.priority
        and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended') and j.run_at <= now()
        and (j.run_at, j.id) >= (v.run_at, v.id)
        and (j.concurrency_key is null or j.name || ':' || j.concurrency_key <> all (%(busy_keys)s::text[]))
      order by j.run_at, j.id
      limit %(scan)s::bigint
    ) f
    limit n.room
  ) d
),
found as materialized (
  select w.id, w.name, w.concurrency_key, w.priority, w.run_at, w.key_room
  from within w
  order by w.priority desc, w.run_at, w.id
  limit %(scan)s::bigint
),
starts as (
  select jsonb_agg(jsonb_build_object('name', v.name, 'priority', v.priority, 'run_at', b.run_at, 'id', b.id)) as starts
  from levels v
  left join (
    select w.name, w.priority, min(w.run_at) as run_at, (array_agg(w.id order by w.run_at, w.id))[1] as id
    from within w
    group by w.name, w.priority
  ) f on f.name = v.name and f.priority = v.priority
  cross join lateral (
    select o.run_at, o.id
    from (
      values (f.run_at, f.id), (now() - interval '1 second', uuid '00000000-0000-0000-0000-000000000000')
    ) o (run_at, id)
    order by o.run_at, o.id
    limit 1
  ) b
),
due as materialized (
  select c.id, c.priority, c.run_at
  from (
    select f.id, f.priority, f.run_at
    from found f
    where f.concurrency_key is null
    union all
    select r.id, r.priority, r.run_at
    from (
      select f.id, f.priority, f.run_at, f.key_room,
             row_number() over (partition by f.name, f.concurrency_key order by f.priority desc, f.run_at, f.id)
               as position
      from found f
      where f.concurrency_key is not null
    ) r
    where r.key_room is null or r.position <= r.key_room
  ) c
  order by c.priority desc, c.run_at, c.id
),
picked as materialized (
  select l.id
  from due d
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = d.id and j.state || '' in ('ready', 'delayed', 'suspended') and j.run_at <= now()
    offset 0
    for update skip locked
  ) l
  limit %(limit)s::bigint
),
taken as (
  update /* schema */x_jobs j
  set state = 'running', attempt = j.attempt + 1, claims = j.claims + 1, claimed_by = %(worker)s::text,
      visible_at = now() + make_interval(secs => %(visibility)s::double precision),
      started_at = now(), updated_at = now()
  from picked p
  where j.id = any (array[p.id])
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
            j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
            j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
            j.updated_at, j.started_at
),
listed as (
  insert into /* schema */x_job_claims (queue, jobs)
  select %(queue)s::text, array_agg(p.id)
  from picked p
  having count(*) > 0
),
upcoming as (
  select case when (select count(*) from picked) < %(limit)s::bigint then (
    select min(n.run_at)
    from levels v
    cross join lateral (
      select j.run_at
      from /* schema */x_jobs j
      where j.queue = %(queue)s::text and j.name = v.name and j.priority = v.priority
        and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended') and j.run_at > now()
      order by j.run_at
      limit 1
    ) n
  ) end as next_run_at
)
select t.id, t.name, t.queue, t.priority, t.state, t.input, t.idempotency_key, t.tenant_id, t.concurrency_key,
       t.run_id, t.attempt, t.max_attempts, t.claims, t.claimed_by, t.visible_at, t.run_at, t.progress, t.result,
       t.last_error, t.last_error_code, t.stop_reason, t.traceparent, t.enqueued_by, t.created_at, t.updated_at,
       t.started_at, case when t.id is not distinct from (select p.id from picked p limit 1) then s.starts end,
       u.next_run_at
from upcoming u
cross join starts s
left join taken t on true
order by t.priority desc, t.run_at, t.id;

-- name: claim_few
-- A claim where few rows are live, in two thirds of the time: reads the first ones of each name, whatever they are, and
-- takes nothing where there may be more. Says how long it read: rows that are dead make it slow.
with seen as materialized (
  select f.id, f.priority, f.run_at, f.state
  from unnest(%(names)s::text[]) as n (name)
  cross join lateral (
    select j.id, j.priority, j.run_at, j.state
    from /* schema */x_jobs j
    where j.queue = %(queue)s::text and j.name = n.name and j.ended_as is null
    order by j.priority desc, j.run_at, j.id
    limit %(few)s::bigint
  ) f
  where not exists (
    select from /* schema */x_job_pauses p
    where (p.queue is null or p.queue = %(queue)s::text) and (p.name is null or p.name = n.name))
  limit %(few)s::bigint
),
due as (
  select s.id
  from seen s
  where s.state in ('ready', 'delayed', 'suspended') and s.run_at <= now()
    and (select count(*) from seen) < %(few)s::bigint
  order by s.priority desc, s.run_at, s.id
),
picked as materialized (
  select l.id
  from due d
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = d.id and j.state || '' in ('ready', 'delayed', 'suspended') and j.run_at <= now()
    offset 0
    for update skip locked
  ) l
  limit %(limit)s::bigint
),
taken as (
  update /* schema */x_jobs j
  set state = 'running', attempt = j.attempt + 1, claims = j.claims + 1, claimed_by = %(worker)s::text,
      visible_at = now() + make_interval(secs => %(visibility)s::double precision),
      started_at = now(), updated_at = now()
  from picked p
  where j.id = any (array[p.id])
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
            j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
            j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
            j.updated_at, j.started_at
),
listed as (
  insert into /* schema */x_job_claims (queue, jobs)
  select %(queue)s::text, array_agg(p.id)
  from picked p
  having count(*) > 0
)
select t.id, t.name, t.queue, t.priority, t.state, t.input, t.idempotency_key, t.tenant_id, t.concurrency_key,
       t.run_id, t.attempt, t.max_attempts, t.claims, t.claimed_by, t.visible_at, t.run_at, t.progress, t.result,
       t.last_error, t.last_error_code, t.stop_reason, t.traceparent, t.enqueued_by, t.created_at, t.updated_at,
       t.started_at, w.is_whole, w.next_run_at, w.seconds
from (
  select count(*) < %(few)s::bigint as is_whole,
         min(s.run_at) filter (where s.state <> 'running' and s.run_at > now()) as next_run_at,
         extract(epoch from clock_timestamp() - statement_timestamp())::double precision as seconds
  from seen s
) w
left join taken t on true;

-- name: claim_lapsed
-- Re-takes running rows whose worker is gone, and buries those on their last attempt, under a full cap too. They are
-- found by what claims have listed; a list of which most has ended makes way for one of what runs. Nobody changes a
-- list, so one that is locked here is as it was read. Where that is all there is to do, the commit waits for no disk: a
-- list that comes back with a crash is dropped again. The counters read the ledger's part, so that the lock order is
-- job rows, ledger rows, counter rows.
with lists as materialized (
  select c.id, cardinality(c.jobs) as listed, r.running, r.lapsed
  from /* schema */x_job_claims c
  cross join lateral (
    select array_agg(j.id) as running, array_agg(j.id) filter (where j.visible_at < now()) as lapsed
    from unnest(c.jobs) as i (id)
    cross join lateral (
      select j.id, j.visible_at
      from /* schema */x_jobs j
      where j.id = i.id and j.state || '' = 'running'
      offset 0
    ) j
  ) r
  where c.queue = %(queue)s::text
),
found as materialized (
  select l.id
  from (select distinct u.id from lists s cross join lateral unnest(s.lapsed) as u (id) order by u.id) u
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = u.id and j.queue = %(queue)s::text and j.state || '' = 'running' and j.visible_at < now()
      and j.name = any (%(names)s::text[])
      and (j.attempt >= j.max_attempts
        or (j.name <> all (%(busy_names)s::text[])
          and (j.concurrency_key is null or j.name || ':' || j.concurrency_key <> all (%(busy_keys)s::text[]))))
      and not exists (
        select from /* schema */x_job_pauses p
        where (p.queue is null or p.queue = j.queue) and (p.name is null or p.name = j.name))
    offset 0
    for update of j skip locked
  ) l
  limit %(limit)s::bigint
),
spent as materialized (
  select k.id, s.running
  from lists s
  cross join lateral (
    select c.id
    from /* schema */x_job_claims c
    where c.queue = %(queue)s::text and c.id = s.id
    offset 0
    for update skip locked
  ) k
  where 2 * coalesce(cardinality(s.running), 0) < s.listed
),
unhurried as materialized (
  select set_config('synchronous_commit', 'off', true) as setting
  where %(alone)s::boolean and not exists (select from found)
),
dropped as (
  delete from /* schema */x_job_claims c
  using spent s
  where c.queue = %(queue)s::text and c.id = s.id and (select count(u.setting) from unhurried u) >= 0
),
listed as (
  insert into /* schema */x_job_claims (queue, jobs)
  select %(queue)s::text, array_agg(distinct u.id)
  from spent s
  cross join lateral unnest(s.running) as u (id)
  having count(*) > 0
),
buried as (
  update /* schema */x_jobs j
  set state = case when j.name = any (%(drop_exhausted)s::text[]) then 'failed' else 'dead' end,
      claimed_by = null, visible_at = null, last_error = %(error)s::text, last_error_code = null,
      stop_reason = 'lapsed', updated_at = now()
  from found f
  where j.id = any (array[f.id]) and j.attempt >= j.max_attempts
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
            j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
            j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
            j.updated_at, j.started_at
),
ledger as (
  update /* schema */x_backfills b
  set status = 'failed', waiting_for = null, last_error = %(error)s::text, last_error_code = null,
      finished_at = now(), updated_at = now(),
      wanted = case when b.shards is null then b.wanted else 'cancel' end,
      shards = jsonb_set(b.shards, array[
        (coalesce(substring(d.concurrency_key from ':s([0-9]{2})$')::integer, 1) - 1)::text, 'status'], '"failed"')
  from buried d
  where b.run_id = any (array[d.run_id]) and b.status in ('running', 'paused')
  returning b.run_id
),
counted as (
  insert into /* schema */x_job_counters as c (tier, bucket, name, shard, dead, dropped)
  select 'minute', date_trunc('minute', now()), d.name, %(shard)s::smallint,
         count(*) filter (where d.state = 'dead'), count(*) filter (where d.state = 'failed')
  from buried d
  where (select count(*) from ledger) >= 0
  group by d.name
  order by d.name
  on conflict (tier, bucket, name, shard) do update
  set dead = c.dead + excluded.dead, dropped = c.dropped + excluded.dropped
),
taken as (
  update /* schema */x_jobs j
  set attempt = j.attempt + 1, claims = j.claims + 1, claimed_by = %(worker)s::text,
      visible_at = now() + make_interval(secs => %(visibility)s::double precision), started_at = now()
  from found f
  where j.id = any (array[f.id]) and j.attempt < j.max_attempts
  returning j.id, j.name, j.queue, j.priority, j.state, j.input, j.idempotency_key, j.tenant_id, j.concurrency_key,
            j.run_id, j.attempt, j.max_attempts, j.claims, j.claimed_by, j.visible_at, j.run_at, j.progress,
            j.result, j.last_error, j.last_error_code, j.stop_reason, j.traceparent, j.enqueued_by, j.created_at,
            j.updated_at, j.started_at
)
select b.id, b.name, b.queue, b.priority, b.state, b.input, b.idempotency_key, b.tenant_id, b.concurrency_key,
       b.run_id, b.attempt, b.max_attempts, b.claims, b.claimed_by, b.visible_at, b.run_at, b.progress, b.result,
       b.last_error, b.last_error_code, b.stop_reason, b.traceparent, b.enqueued_by, b.created_at, b.updated_at,
       b.started_at
from buried b
union all
select t.id, t.name, t.queue, t.priority, t.state, t.input, t.idempotency_key, t.tenant_id, t.concurrency_key,
       t.run_id, t.attempt, t.max_attempts, t.claims, t.claimed_by, t.visible_at, t.run_at, t.progress, t.result,
       t.last_error, t.last_error_code, t.stop_reason, t.traceparent, t.enqueued_by, t.created_at, t.updated_at,
       t.started_at
from taken t;

-- name: settle
-- What most of a group has in common is sent once, as a kind. Fenced through the primary key: with the state left to
-- the planner it walks the index of running rows. The lock
-- order is job rows by id, ledger rows, counter rows by key. What a miss means is asked by scalar subqueries: an
-- `exists` could be hashed, over the whole table.
with kinds as materialized (
  select k.worker, k.state, k.gives_back, k.counter, k.delay, k.run_at, k.sets_error, k.clears_error, k.error,
         k.error_code, k.stop_reason, k.pausing, k.wakes, k.sweep, k.kind
  from unnest(
    %(worker)s::text[], %(state)s::text[], %(gives_back)s::boolean[], %(counter)s::text[],
    %(delay)s::double precision[], %(run_at)s::timestamptz[], %(sets_error)s::boolean[],
    %(clears_error)s::boolean[], %(error)s::text[], %(error_code)s::text[], %(stop_reason)s::text[],
    %(pausing)s::boolean[], %(wakes)s::boolean[], %(sweep)s::boolean[]
  ) with ordinality as k (
    worker, state, gives_back, counter, delay, run_at, sets_error, clears_error, error, error_code, stop_reason,
    pausing, wakes, sweep, kind)
),
asked as materialized (
  select a.id, k.worker, a.claim, k.state, k.gives_back, k.delay, k.run_at, k.sets_error, k.clears_error, k.error,
         k.error_code, k.stop_reason, a.result, a.progress, a.duration, k.counter, k.sweep, k.pausing, k.wakes,
         a.position
  from unnest(
    %(id)s::uuid[], %(claim)s::bigint[], %(kind)s::bigint[], %(result)s::text[], %(progress)s::text[],
    %(duration)s::bigint[]
  ) with ordinality as a (id, claim, kind, result, progress, duration, position)
  join kinds k on k.kind = a.kind
),
held as materialized (
  select a.position, l.id, l.run_id
  from (select a.position, a.id, a.worker, a.claim from asked a order by a.id) a
  cross join lateral (
    select j.id, j.run_id
    from /* schema */x_jobs j
    where j.id = a.id and j.claimed_by = a.worker and j.claims = a.claim
    offset 0
    for no key update skip locked
  ) l
),
steered as materialized (
  select h.position, l.run_id, l.wanted
  from (select h.position, h.run_id from held h join asked a on a.position = h.position and a.sweep
        order by h.run_id) h
  cross join lateral (
    select b.run_id, b.wanted
    from /* schema */x_backfills b
    where b.run_id = h.run_id
    offset 0
    for no key update
  ) l
),
plan as materialized (
  select h.id, a.position, a.state, a.gives_back, a.sets_error, a.clears_error, a.error, a.error_code,
         a.stop_reason, a.result, a.progress, a.duration, a.counter, a.wakes, s.run_id as ledger_run_id,
         coalesce(a.pausing and s.wanted = 'pause', false) as pauses,
         case when a.pausing and coalesce(s.wanted, 'run') <> 'pause' then now()
              else coalesce(a.run_at, now() + make_interval(secs => a.delay)) end as run_at
  from held h
  join asked a on a.position = h.position
  left join steered s on s.position = h.position
),
moved as (
  update /* schema */x_jobs j
  set state = p.state,
      attempt = case when p.gives_back then greatest(j.attempt - 1, 0) else j.attempt end,
      -- A publication that met the run on its way to park has set its `run_at` anew.
      run_at = case when p.state = 'suspended' and j.run_at > j.started_at then now()
                    else coalesce(p.run_at, j.run_at) end,
      claimed_by = null,
      visible_at = null,
      result = case when p.state = 'done' then p.result::jsonb else j.result end,
      progress = coalesce(p.progress::jsonb, j.progress),
      last_error = case when p.sets_error then p.error when p.clears_error then null else j.last_error end,
      last_error_code =
        case when p.sets_error then p.error_code when p.clears_error then null else j.last_error_code end,
      stop_reason = case when p.sets_error then p.stop_reason when p.clears_error then null else j.stop_reason end,
      updated_at = now()
  from plan p
  where j.id = any (array[p.id])
  returning p.position, j.name, j.queue, p.wakes and j.run_at < now() + interval '30 seconds' as wakes,
            coalesce(substring(j.concurrency_key from ':s([0-9]{2})$')::integer, 1) as shard
),
ledger as (
  update /* schema */x_backfills b
  set status = case when p.state in ('dead', 'failed') then 'failed' when p.pauses then 'paused' else b.status end,
      finished_at = case when p.state in ('dead', 'failed') then now() else b.finished_at end,
      waiting_for = null,
      last_error = case when p.sets_error then p.error else b.last_error end,
      last_error_code = case when p.sets_error then p.error_code else b.last_error_code end,
      -- The other shards of a run hear of one that failed by what is wanted; no settle locks their rows.
      wanted = case when p.state in ('dead', 'failed') and b.shards is not null then 'cancel' else b.wanted end,
      shards = case
        when p.state in ('dead', 'failed') and b.shards is not null
          then jsonb_set(b.shards, array[(m.shard - 1)::text, 'status'], '"failed"')
        else b.shards
      end,
      updated_at = now()
  from moved m
  join plan p on p.position = m.position
  where b.run_id = any (array[p.ledger_run_id]) and b.status in ('running', 'paused')
    and (p.sets_error or p.pauses)
),
counted as (
  insert into /* schema */x_job_counters as c
    (tier, bucket, name, shard, completed, retried, deferred, dead, dropped, refused, run_ms, max_run_ms)
  select 'minute', date_trunc('minute', now()), m.name, %(shard)s::smallint,
         count(*) filter (where p.counter = 'completed'), count(*) filter (where p.counter = 'retried'),
         count(*) filter (where p.counter = 'deferred'), count(*) filter (where p.counter = 'dead'),
         count(*) filter (where p.counter = 'dropped'), count(*) filter (where p.counter = 'refused'),
         coalesce(sum(p.duration) filter (where p.counter = 'completed'), 0)::bigint,
         coalesce(max(p.duration) filter (where p.counter = 'completed'), 0)
  from moved m
  join plan p on p.position = m.position
  where p.counter is not null
  group by m.name
  order by m.name
  on conflict (tier, bucket, name, shard) do update
  set completed = c.completed + excluded.completed, retried = c.retried + excluded.retried,
      deferred = c.deferred + excluded.deferred, dead = c.dead + excluded.dead,
      dropped = c.dropped + excluded.dropped, refused = c.refused + excluded.refused,
      run_ms = c.run_ms + excluded.run_ms, max_run_ms = greatest(c.max_run_ms, excluded.max_run_ms)
),
woken as materialized (
  select count(pg_notify('rowsweep_wake', q.queue)) as queues
  from (select distinct m.queue from moved m where m.wakes) q
)
select a.position,
       case when m.position is not null then true
            when (select true from /* schema */x_jobs j
                  where j.id = a.id and j.claimed_by = a.worker and j.claims = a.claim) then null
            else %(resent)s::boolean and coalesce((
              select true
              from /* schema */x_jobs j
              where j.id = a.id and j.claimed_by is null and j.claims = a.claim and j.state || '' = a.state), false)
       end as landed
from asked a
join woken w on w.queues >= 0
left join moved m on m.position = a.position
order by a.position;

-- name: renew
-- Touches no indexed column, so that each renewal stays a HOT update; locked rows are skipped, never waited for.
with asked as materialized (
  select a.id, a.worker, a.claim, a.position
  from unnest(%(id)s::uuid[], %(worker)s::text[], %(claim)s::bigint[]) with ordinality
         as a (id, worker, claim, position)
),
held as materialized (
  select a.position, l.id
  from (select a.position, a.id, a.worker, a.claim from asked a order by a.id) a
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = a.id and j.claimed_by = a.worker and j.claims = a.claim
    offset 0
    for no key update skip locked
  ) l
),
renewed as (
  update /* schema */x_jobs j
  set visible_at = now() + make_interval(secs => %(visibility)s::double precision)
  from held h
  where j.id = any (array[h.id])
)
select a.position,
       case when h.position is not null then true
            when (select true from /* schema */x_jobs j
                  where j.id = a.id and j.claimed_by = a.worker and j.claims = a.claim) then null
            else false
       end as renewed
from asked a
left join held h on h.position = a.position
order by a.position;

-- name: record_progress
-- Leaves updated_at alone: it is indexed, and the write must stay HOT.
update /* schema */x_jobs j
set progress = %(progress)s::jsonb
where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
returning j.id;

-- name: stats
-- Live rows come off the partial indexes; finished ones are counted off theirs.
with counted as (
  select j.queue, j.state, j.state <> 'running' and j.run_at <= now() as is_due, count(*) as amount,
         min(j.run_at) as oldest
  from /* schema */x_jobs j
  where j.ended_as is null
  group by j.queue, j.state, j.state <> 'running' and j.run_at <= now()
  union all
  select j.queue, j.ended_as, false, count(*), null
  from /* schema */x_jobs j
  where j.ended_as is not null
  group by j.queue, j.ended_as
)
select c.queue,
       coalesce(sum(c.amount) filter (where c.state = 'ready' or (c.state = 'delayed' and c.is_due)), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'delayed' and not c.is_due), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'running'), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'suspended'), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'done'), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'failed'), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'dead'), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.state = 'cancelled'), 0)::bigint,
       coalesce(sum(c.amount) filter (where c.is_due), 0)::bigint,
       extract(epoch from now() - min(c.oldest) filter (where c.is_due))::double precision
from counted c
group by c.queue
order by c.queue;
