-- name: put
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
)
update /* schema */x_backfills b
set shards = %(shards)s::jsonb, updated_at = now()
from job
where b.run_id = %(run_id)s::uuid
returning b.run_id;

-- name: move
-- As the ledger's `progress`, but nobody waits for the row that the run's jobs share: what is reported is absolute, so
-- whoever has it free next reports for itself, and the sums follow. Time at work is what passed since anyone last
-- reported, as far as this shard was at work in it: jobs side by side count once, and a pause not at all. With more
-- behind it a close that does not land fails (22012), so that nothing behind it runs.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
    and (%(marker)s::text is null or current_setting('rowsweep.batch', true) = %(marker)s::text)
  for no key update
),
step as (
  update /* schema */x_job_steps t
  set output = %(value)s::jsonb, completed_at = clock_timestamp()
  from job
  where t.run_id = %(run_id)s::uuid and t.name = %(step)s::text and t.output = %(expected)s::jsonb
  returning t.run_id
),
restarted as (
  update /* schema */x_jobs j
  set attempt = 1
  from step s
  where j.id = %(job_id)s::uuid and j.attempt > 1
),
free as materialized (
  select b.run_id, jsonb_set(b.shards, array[%(place)s::text], %(shard)s::jsonb) as shards,
         b.active_seconds + greatest(0, least(
           %(active_seconds)s::double precision
             - coalesce((b.shards -> %(place)s::integer ->> 'active_seconds')::double precision, 0),
           extract(epoch from clock_timestamp() - b.updated_at)::double precision)) as active_seconds
  from step s
  join /* schema */x_backfills b on b.run_id = s.run_id
  where b.shards is not null
  for no key update of b skip locked
),
summed as (
  select f.run_id, f.shards, round(f.active_seconds::numeric, 3)::double precision as active_seconds,
         t.rows, t.written, t.batches
  from free f
  cross join lateral (
    select sum((e.value ->> 'rows')::bigint)::bigint as rows, sum((e.value ->> 'written')::bigint)::bigint as written,
           sum((e.value ->> 'batches')::bigint)::bigint as batches
    from jsonb_array_elements(f.shards) e
  ) t
),
ledger as (
  update /* schema */x_backfills b
  set shards = m.shards, rows = m.rows, written = m.written, batches = m.batches, cursor = null,
      active_seconds = m.active_seconds, waiting_for = null, updated_at = clock_timestamp(),
      samples = case
        when (b.samples -> -1 ->> 0)::double precision > m.active_seconds - 1 then b.samples
        when jsonb_array_length(b.samples) < %(most_samples)s::integer
          then b.samples || jsonb_build_array(jsonb_build_array(m.active_seconds, m.rows))
        else (
          select jsonb_agg(e.value order by e.n)
          from jsonb_array_elements(b.samples || jsonb_build_array(jsonb_build_array(m.active_seconds, m.rows)))
               with ordinality e (value, n)
          where e.n %% 2 = 1)
      end
  from summed m
  where b.run_id = m.run_id
  returning b.run_id
)
select %(marker)s::text is null or coalesce(current_setting('rowsweep.batch', true) = %(marker)s::text, false),
       exists (select from job), exists (select from step), b.wanted, b.options, exists (select from ledger),
       case when %(has_more)s::boolean then 1 / s.landed end
from (select count(*)::integer as landed from step) s
left join /* schema */x_backfills b on b.run_id = %(run_id)s::uuid;

-- name: jobs
-- By the checkpoints: the job of a shard that is done may be gone.
select coalesce(substring(t.name from ':s([0-9]{2})$')::integer, 1) as number, j.id, j.state, t.output
from /* schema */x_job_steps t
left join /* schema */x_jobs j
  on j.run_id = t.run_id
 and coalesce(substring(j.concurrency_key from ':s([0-9]{2})$'), '')
     = coalesce(substring(t.name from ':s([0-9]{2})$'), '')
where t.run_id = %(run_id)s::uuid and (t.name = %(step)s::text or starts_with(t.name, %(step)s::text || ':s'))
order by number;

-- name: hold
-- The other's row is passed over where it is locked, perhaps by a process that is frozen: this one's own row is locked
-- meanwhile, and a lease whose row is locked is not renewed.
with own as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
),
other as materialized (
  select j.id
  from own
  cross join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = %(other)s::uuid
    offset 0
    for no key update skip locked
  ) j
)
select exists (select from own), exists (select from other);

-- name: stop
-- The reason names the shard that failed, where one did. Asked under the ledger row's lock: a resume may have come.
with job as materialized (
  select j.id, j.run_id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
),
asked as materialized (
  select b.run_id, b.shards, b.wanted
  from job
  join /* schema */x_backfills b on b.run_id = job.run_id
  for no key update of b
),
reason as (
  select a.run_id, coalesce((
           select 'shard ' || e.n || ' failed, so that the run stops'
           from jsonb_array_elements(a.shards) with ordinality e (value, n)
           where e.value ->> 'status' = 'failed'
           order by e.n
           limit 1), 'the run was cancelled') as text
  from asked a
  where a.wanted = 'cancel'
),
stopped as (
  update /* schema */x_jobs j
  set state = 'cancelled', claimed_by = null, visible_at = null, last_error = r.text, last_error_code = null,
      stop_reason = 'cancelled', updated_at = now()
  from reason r
  where j.id = %(job_id)s::uuid
  returning j.run_id
),
ledger as (
  update /* schema */x_backfills b
  set shards = jsonb_set(b.shards, array[%(place)s::text, 'status'], '"cancelled"'), updated_at = now()
  from stopped s
  where b.run_id = s.run_id and b.shards is not null
)
select exists (select from job), exists (select from stopped);

-- name: revive
-- A job that is done stays done: what it had to do, it did.
with run as materialized (
  select b.run_id
  from /* schema */x_jobs j
  join /* schema */x_backfills b on b.run_id = j.run_id
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
    and b.wanted <> 'cancel' and b.shards is not null
),
ended as materialized (
  select j.id
  from run r
  join /* schema */x_jobs j on j.run_id = r.run_id
  where j.state || '' in ('failed', 'dead', 'cancelled')
  order by j.id
  for no key update of j
),
due as (
  update /* schema */x_jobs j
  set state = 'ready', attempt = 0, run_at = now(), last_error = null, last_error_code = null, stop_reason = null,
      updated_at = now()
  from ended e
  where j.id = any (array[e.id])
  returning j.id, j.queue
)
select d.id
from due d
where (select count(pg_notify('rowsweep_wake', q.queue)) from (select distinct w.queue from due w) q) > 0;

-- name: ended
-- A first job that is on its way to park finds its `run_at` set anew, and is due at once.
with waiting as materialized (
  select j.id
  from /* schema */x_jobs j
  join /* schema */x_backfills b on b.run_id = j.run_id
  where j.run_id = %(run_id)s::uuid
    and ((coalesce(j.concurrency_key, '') !~ ':s[0-9]{2}$' and j.state || '' in ('suspended', 'running'))
      or (b.wanted = 'cancel' and j.state || '' in ('ready', 'delayed', 'suspended')))
  order by j.id
  for no key update of j
),
due as (
  update /* schema */x_jobs j
  set run_at = now(), updated_at = now()
  from waiting w
  where j.id = any (array[w.id])
  returning j.queue
)
select count(pg_notify('rowsweep_wake', q.queue))
from (select distinct d.queue from due d) q;
