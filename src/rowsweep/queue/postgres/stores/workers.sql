-- name: look
-- One statement for an idle worker: its announcement, the poll for events and the wake's proof ride on the look;
-- nothing is claimed. The next instant is that of a waiting row, or of a lease that lapses unless it is renewed.
-- Whoever finds the last sample of depths old enough takes the next one; a sample under way holds nobody up.
with recursive announced as (
  insert into /* schema */x_job_workers as w
    (id, host, pid, app_version, queues, names, concurrency, state, in_flight, processed, interrupted, wake,
     started_at, seen_at, expires_at)
  select %(id)s::text, %(host)s::text, %(pid)s::integer, %(app_version)s::text, %(own_queues)s::text[],
         %(own_names)s::text[], %(concurrency)s::jsonb, %(state)s::text, %(in_flight)s::integer,
         %(processed)s::bigint, %(interrupted)s::bigint, %(wake)s::boolean, now(), now(),
         now() + make_interval(secs => %(expires)s::double precision)
  where %(id)s::text is not null
  on conflict (id) do update
  set host = excluded.host, pid = excluded.pid, app_version = excluded.app_version, queues = excluded.queues,
      names = excluded.names, concurrency = excluded.concurrency, state = excluded.state,
      in_flight = excluded.in_flight, processed = excluded.processed, interrupted = excluded.interrupted,
      wake = excluded.wake, seen_at = excluded.seen_at, expires_at = excluded.expires_at
),
stale as materialized (
  select l.lease_key, l.slot
  from /* schema */x_job_leases l
  where %(sample)s::boolean and l.lease_key = '*depth' and l.slot = 0 and l.expires_at <= now()
  for update skip locked
),
renewed as (
  update /* schema */x_job_leases l
  set holder = %(id)s::text, expires_at = now() + make_interval(secs => %(every)s::double precision)
  from stale s
  where l.lease_key = s.lease_key and l.slot = s.slot
  returning l.slot
),
first as (
  insert into /* schema */x_job_leases as l (lease_key, slot, holder, job_id, expires_at)
  select '*depth', 0, %(id)s::text, gen_random_uuid(), now() + make_interval(secs => %(every)s::double precision)
  where %(sample)s::boolean
    and not exists (select from /* schema */x_job_leases k where k.lease_key = '*depth' and k.slot = 0)
  on conflict (lease_key, slot) do nothing
  returning l.slot
),
taken as materialized (
  select r.slot from renewed r
  union all
  select f.slot from first f
),
filled (queue) as (
  select (select j.queue from /* schema */x_jobs j where j.ended_as is null order by j.queue limit 1)
  from taken
  union all
  select (select j.queue from /* schema */x_jobs j where j.ended_as is null and j.queue > f.queue
          order by j.queue limit 1)
  from filled f
  where f.queue is not null
),
buried as materialized (
  select d.queue, count(*) as amount
  from taken
  cross join lateral (
    select j.queue from /* schema */x_jobs j where j.ended_as = 'dead' limit %(most)s::bigint
  ) d
  group by d.queue
),
depths as materialized (
  select q.queue, w.ready, w.oldest, w.seen, coalesce(b.amount, 0) as dead
  from (select f.queue from filled f where f.queue is not null
        union select b.queue from buried b
        union select u.queue from taken cross join lateral unnest(%(own_queues)s::text[]) as u (queue)) q
  cross join lateral (
    select count(*) filter (where r.state = 'ready' or r.run_at <= now()) as ready,
           min(r.run_at) filter (where r.run_at <= now()) as oldest, count(*) as seen
    from (select j.state, j.run_at from /* schema */x_jobs j
          where j.queue = q.queue and j.ended_as is null and j.state in ('ready', 'delayed')
          limit %(most)s::bigint) r
  ) w
  left join buried b on b.queue = q.queue
),
pairs as materialized (
  select q.queue, n.name
  from unnest(%(queues)s::text[]) as q (queue)
  cross join unnest(%(names)s::text[]) as n (name)
  where not exists (
    select from /* schema */x_job_pauses p
    where (p.queue is null or p.queue = q.queue) and (p.name is null or p.name = n.name))
),
levels (queue, name, priority) as (
  select p.queue, p.name, l.priority
  from pairs p
  cross join lateral (
    select j.priority
    from /* schema */x_jobs j
    where j.queue = p.queue and j.name = p.name and j.ended_as is null
      and j.state in ('ready', 'delayed', 'suspended')
    order by j.priority desc
    limit 1
  ) l
  union all
  select v.queue, v.name, l.priority
  from levels v
  cross join lateral (
    select j.priority
    from /* schema */x_jobs j
    where j.queue = v.queue and j.name = v.name and j.priority < v.priority
      and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended')
    order by j.priority desc
    limit 1
  ) l
),
heads as materialized (
  select v.queue, h.run_at <= now() as is_due,
         case when h.run_at <= now() then n.run_at else h.run_at end as later
  from levels v
  cross join lateral (
    select j.run_at
    from /* schema */x_jobs j
    where j.queue = v.queue and j.name = v.name and j.priority = v.priority
      and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended')
    order by j.run_at
    limit 1
  ) h
  left join lateral (
    select j.run_at
    from /* schema */x_jobs j
    where j.queue = v.queue and j.name = v.name and j.priority = v.priority
      and j.ended_as is null and j.state in ('ready', 'delayed', 'suspended') and j.run_at > now()
    order by j.run_at
    limit 1
  ) n on h.run_at <= now()
),
lapses as materialized (
  select q.queue, l.lapses_at
  from unnest(%(queues)s::text[]) as q (queue)
  cross join lateral (
    select min(j.visible_at) as lapses_at
    from /* schema */x_job_claims c
    cross join lateral unnest(c.jobs) as i (id)
    cross join lateral (
      select j.name, j.visible_at
      from /* schema */x_jobs j
      where j.id = i.id and j.state || '' = 'running'
      offset 0
    ) j
    join pairs p on p.queue = q.queue and p.name = j.name
    where c.queue = q.queue
  ) l
),
came as materialized (
  select t.run_id
  from /* schema */x_job_steps t
  cross join lateral (
    select 1
    from /* schema */x_job_events e
    where e.name = t.event and coalesce(e.correlation_key, '') = coalesce(t.correlation_key, '')
      and e.correlation_key is not distinct from t.correlation_key
      and e.xid >= pg_snapshot_xmin((t.output ->> 'snapshot')::pg_snapshot)
      and not pg_visible_in_snapshot(e.xid, (t.output ->> 'snapshot')::pg_snapshot) and e.expires_at > now()
    order by e.xid
    limit 1
  ) event
  where cardinality(%(poll)s::text[]) > 0 and t.status = 'waiting' and t.event is not null
  group by t.run_id
),
parked as materialized (
  select l.id, l.queue
  from (
    select j.id
    from came c
    cross join lateral (
      select j.id
      from /* schema */x_jobs j
      where j.run_id = c.run_id and j.state || '' = 'suspended'
      offset 0
    ) j
    order by j.id
  ) p
  cross join lateral (
    select j.id, j.queue
    from /* schema */x_jobs j
    where j.id = p.id and j.state || '' = 'suspended' and j.run_at > now() and j.name = any (%(poll)s::text[])
    offset 0
    for no key update skip locked
  ) l
),
woken as (
  update /* schema */x_jobs j
  set run_at = now(), updated_at = now()
  from parked p
  where j.id = any (array[p.id])
  returning p.queue
)
select array(select h.queue from heads h where h.is_due
             union select l.queue from lapses l where l.lapses_at < now()
             union select w.queue from woken w order by 1),
       (select extract(epoch from min(n.later) - now())::double precision
        from (select h.later from heads h
              union all select l.lapses_at from lapses l where l.lapses_at >= now()) n (later)),
       (select count(pg_notify('rowsweep_wake', p.word))
        from (select %(proof)s::text) p (word)
        where p.word is not null),
       case when exists (select from taken) then coalesce(
         (select jsonb_agg(jsonb_build_array(d.queue, d.ready, d.dead,
                                             coalesce(extract(epoch from now() - d.oldest), 0),
                                             d.seen >= %(most)s::bigint)
                           order by d.queue)
          from depths d), '[]') end;

-- name: leave
delete from /* schema */x_job_workers w
where w.id = %(id)s::text
returning w.id;

-- name: live
select w.id, w.host, w.pid, w.app_version, w.queues, w.names, w.concurrency, w.state, w.in_flight, w.processed,
       w.interrupted, w.wake, w.seen_at
from /* schema */x_job_workers w
where w.expires_at > now()
order by w.id;
