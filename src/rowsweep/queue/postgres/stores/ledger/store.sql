-- name: start
insert into /* schema */x_backfills as b
  (run_id, name, kind, checksum, app_version, environment, status, input, options, launched_by, started_at,
   updated_at)
values (%(run_id)s::uuid, %(name)s::text, %(kind)s::text, %(checksum)s::text, %(app_version)s::text,
        %(environment)s::text, 'running', %(input)s::jsonb, %(options)s::jsonb, %(launched_by)s::text,
        statement_timestamp(), statement_timestamp())
on conflict (run_id) do update
set checksum = excluded.checksum, app_version = excluded.app_version, updated_at = excluded.updated_at,
    options = case when excluded.options ?| '{declared_rate,destination}'
      then coalesce(b.options - 'declared_rate', '{}') || jsonb_strip_nulls(jsonb_build_object(
        'declared_rate', excluded.options -> 'declared_rate', 'destination', excluded.options -> 'destination'))
      else b.options - 'declared_rate' end
returning b.run_id;

-- name: progress
-- The last statement of a batch: each part reads the result of the one before, because Postgres orders the parts by
-- nothing else. An update asks for the expected checkpoint itself, so that one found only after waiting for the job
-- row counts. Samples that are not given keep their TOAST value.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
    and (%(marker)s::text is null or current_setting('rowsweep.batch', true) = %(marker)s::text)
  for no key update
),
replaced as (
  update /* schema */x_job_steps t
  set output = %(value)s::jsonb, status = 'done', error = null, completed_at = clock_timestamp()
  from job
  where t.run_id = %(run_id)s::uuid and t.name = %(step)s::text and t.output = %(expected)s::jsonb
  returning t.name
),
opened as (
  insert into /* schema */x_job_steps
    (run_id, name, kind, status, output, started_at, completed_at)
  select %(run_id)s::uuid, %(step)s::text, 'checkpoint', 'done', %(value)s::jsonb, clock_timestamp(),
         clock_timestamp()
  from job
  where %(expected)s::jsonb is null
  on conflict (run_id, name) do nothing
  returning name
),
step as materialized (
  select r.name from replaced r
  union all
  select o.name from opened o
),
restarted as (
  update /* schema */x_jobs j
  set attempt = 1
  from step s
  where j.id = %(job_id)s::uuid and j.attempt > 1 and %(moves)s::boolean
),
ledger as (
  update /* schema */x_backfills b
  set rows = %(rows)s::bigint, written = %(written)s::bigint, batches = %(batches)s::bigint,
      cursor = %(cursor)s::jsonb, active_seconds = %(active_seconds)s::double precision,
      samples = coalesce(%(samples)s::jsonb, b.samples), waiting_for = null,
      checksum = coalesce(%(checksum)s::text, b.checksum), updated_at = now()
  from step s
  where b.run_id = %(run_id)s::uuid and %(moves)s::boolean
  returning b.wanted, b.options
),
shown as (
  select l.wanted, l.options from ledger l
  union all
  select b.wanted, b.options
  from /* schema */x_backfills b
  where b.run_id = %(run_id)s::uuid and not exists (select from ledger)
)
select %(marker)s::text is null or coalesce(current_setting('rowsweep.batch', true) = %(marker)s::text, false),
       exists (select from job), exists (select from step), s.wanted, s.options
from (values (1)) one (n)
left join shown s on true;

-- name: move
-- What `progress` does for all but the first batch of an attempt, without the parts that only that one needs: these
-- statements are sent thousands of times, and each part costs even where it does nothing.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
    and current_setting('rowsweep.batch', true) = %(marker)s::text
  for no key update
),
step as (
  update /* schema */x_job_steps t
  set output = %(value)s::jsonb, completed_at = clock_timestamp()
  from job
  where t.run_id = %(run_id)s::uuid and t.name = %(step)s::text and t.output = %(expected)s::jsonb
  returning t.run_id
),
ledger as (
  update /* schema */x_backfills b
  set rows = %(rows)s::bigint, written = %(written)s::bigint, batches = %(batches)s::bigint,
      cursor = %(cursor)s::jsonb, active_seconds = %(active_seconds)s::double precision,
      samples = coalesce(%(samples)s::jsonb, b.samples), waiting_for = null, updated_at = now()
  from step s
  where b.run_id = s.run_id
  returning b.wanted, b.options
)
select coalesce(current_setting('rowsweep.batch', true) = %(marker)s::text, false),
       exists (select from job), exists (select from step), l.wanted, l.options
from (values (1)) one (n)
left join ledger l on true;

-- name: move_on
-- `move` with the commit and the next batch travelling behind it: where the fence does not land it fails (22012), so that
-- the transaction is void and nothing behind it runs. No handler can have ended the transaction: it asks for no marker.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
),
step as (
  update /* schema */x_job_steps t
  set output = %(value)s::jsonb, completed_at = clock_timestamp()
  from job
  where t.run_id = %(run_id)s::uuid and t.name = %(step)s::text and t.output = %(expected)s::jsonb
  returning t.run_id
),
ledger as (
  update /* schema */x_backfills b
  set rows = %(rows)s::bigint, written = %(written)s::bigint, batches = %(batches)s::bigint,
      cursor = %(cursor)s::jsonb, active_seconds = %(active_seconds)s::double precision,
      samples = coalesce(%(samples)s::jsonb, b.samples), waiting_for = null, updated_at = now()
  from step s
  where b.run_id = s.run_id
  returning b.wanted, b.options
)
select l.wanted, l.options, 1 / s.landed
from (select count(*)::integer as landed from step) s
left join ledger l on true;

-- name: describe
-- What the governor did is added up: several passes may account for one run.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
)
update /* schema */x_backfills b
set estimated_rows = case when %(has_estimate)s::boolean then %(estimated_rows)s::bigint else b.estimated_rows end,
    estimate_source = case when %(has_estimate)s::boolean then %(estimate_source)s::text else b.estimate_source end,
    waiting_for = %(waiting_for)s::text,
    options = case when %(governed)s::jsonb is null then b.options
      else coalesce(b.options, '{}') || jsonb_build_object('governor', (
          select jsonb_object_agg(w.how, (
            select coalesce(jsonb_object_agg(h.name, h.seconds), '{}')
            from (
              select e.name, sum(e.seconds::numeric) as seconds
              from (
                select k.key as name, k.value as seconds
                from jsonb_each_text(coalesce(b.options #> array['governor', w.how], '{}')) k
                union all
                select n.key, n.value from jsonb_each_text(coalesce(%(governed)s::jsonb -> w.how, '{}')) n
              ) e
              group by e.name
            ) h))
          from (values ('held'), ('slowed')) w (how)
        ) || jsonb_build_object('signals', coalesce(
          %(governed)s::jsonb -> 'signals', b.options #> '{governor,signals}', '{}')))
      end,
    updated_at = now()
from job
where b.run_id = %(run_id)s::uuid
returning b.run_id;

-- name: finish
-- A row that is done already stays as it is, and still answers for the fence.
with job as materialized (
  select j.id
  from /* schema */x_jobs j
  where j.id = %(job_id)s::uuid and j.claimed_by = %(worker)s::text and j.claims = %(claim)s::bigint
  for no key update
),
finished as (
  update /* schema */x_backfills b
  set status = 'done', rows = %(rows)s::bigint, written = %(written)s::bigint, batches = %(batches)s::bigint,
      cursor = %(cursor)s::jsonb, active_seconds = %(active_seconds)s::double precision,
      samples = coalesce(%(samples)s::jsonb, b.samples), waiting_for = null, last_error = null,
      last_error_code = null, finished_at = now(), updated_at = now(),
      options = case when %(noted)s::jsonb is null then b.options
                     else coalesce(b.options, '{}') || %(noted)s::jsonb end
  from job
  where b.run_id = %(run_id)s::uuid and b.status <> 'done'
  returning b.run_id
)
select b.run_id
from job
join /* schema */x_backfills b on b.run_id = %(run_id)s::uuid;

-- name: get
select b.run_id, b.name, b.kind, b.checksum, b.app_version, b.environment, b.status, b.wanted, b.waiting_for,
       b.rows, b.written, b.batches, b.cursor, b.estimated_rows, b.estimate_source, b.active_seconds, b.samples,
       b.shards, b.input, b.options, b.rejected_rows, b.launched_by, b.last_error,
       b.last_error_code, b.started_at, b.updated_at, b.finished_at, coalesce(l.live, false), f.id, f.state,
       coalesce(l.retries, f.attempt), l.retry_at, f.max_attempts,
       extract(epoch from clock_timestamp() - b.updated_at)::double precision
from /* schema */x_backfills b
left join lateral (
  select j.id, j.state, j.attempt, j.max_attempts
  from /* schema */x_jobs j
  where j.run_id = b.run_id
  order by j.created_at, j.id
  limit 1
) f on true
left join lateral (
  select bool_or(j.visible_at > now()) as live,
         min(j.run_at) filter (where j.state = 'ready' and j.run_at > now()) as retry_at,
         max(j.attempt) filter (where j.state = 'ready' and j.run_at > now()) as retries
  from /* schema */x_jobs j
  where j.run_id = b.run_id
) l on true
where b.run_id = %(run_id)s::uuid;

-- name: list
-- The page is cut before the jobs are looked up.
select b.run_id, b.name, b.kind, b.checksum, b.app_version, b.environment, b.status, b.wanted, b.waiting_for,
       b.rows, b.written, b.batches, b.cursor, b.estimated_rows, b.estimate_source, b.active_seconds, b.samples,
       b.shards, b.input, b.options, b.rejected_rows, b.launched_by, b.last_error,
       b.last_error_code, b.started_at, b.updated_at, b.finished_at, coalesce(l.live, false), f.id, f.state,
       coalesce(l.retries, f.attempt), l.retry_at, f.max_attempts,
       extract(epoch from clock_timestamp() - b.updated_at)::double precision
from (
  select p.run_id, p.name, p.kind, p.checksum, p.app_version, p.environment, p.status, p.wanted, p.waiting_for,
         p.rows, p.written, p.batches, p.cursor, p.estimated_rows, p.estimate_source, p.active_seconds,
         p.samples, p.shards, p.input, p.options, p.rejected_rows, p.launched_by, p.last_error,
         p.last_error_code, p.started_at, p.updated_at, p.finished_at
  from /* schema */x_backfills p
  where (%(name)s::text is null or p.name = %(name)s::text)
    and (%(status)s::text is null or p.status = %(status)s::text)
    and (%(kind)s::text is null or p.kind = %(kind)s::text)
    and (%(run_id_prefix)s::text is null or starts_with(p.run_id::text, %(run_id_prefix)s::text))
    and (%(run_ids)s::uuid[] is null or p.run_id = any (%(run_ids)s::uuid[]))
  order by p.started_at desc, p.run_id desc
  limit %(limit)s::bigint
) b
left join lateral (
  select j.id, j.state, j.attempt, j.max_attempts
  from /* schema */x_jobs j
  where j.run_id = b.run_id
  order by j.created_at, j.id
  limit 1
) f on true
left join lateral (
  select bool_or(j.visible_at > now()) as live,
         min(j.run_at) filter (where j.state = 'ready' and j.run_at > now()) as retry_at,
         max(j.attempt) filter (where j.state = 'ready' and j.run_at > now()) as retries
  from /* schema */x_jobs j
  where j.run_id = b.run_id
) l on true
order by b.started_at desc, b.run_id desc;

-- name: wanted
select b.run_id, b.wanted, b.options
from /* schema */x_backfills b
where b.run_id = any (%(run_ids)s::uuid[]);

-- name: lock_jobs
-- Job rows first, then the ledger row: the order of every statement that moves both.
select j.id, j.state, coalesce(j.visible_at > clock_timestamp(), false), j.name, j.tenant_id, j.idempotency_key
from /* schema */x_jobs j
where j.run_id = %(run_id)s::uuid
order by j.id
for no key update;

-- name: lock_row
select b.name, b.status, b.wanted
from /* schema */x_backfills b
where b.run_id = %(run_id)s::uuid
for no key update;

-- name: ask
update /* schema */x_backfills b
set wanted = %(wanted)s::text, updated_at = now()
where b.run_id = %(run_id)s::uuid
returning b.run_id;

-- name: say_why
-- The last pause's: one that says nothing forgets the former's.
update /* schema */x_backfills b
set options = case
      when coalesce(%(reason)s::text, %(by)s::text) is null then b.options - 'paused'
      else coalesce(b.options, '{}') || jsonb_build_object('paused', jsonb_build_object(
        'by', %(by)s::text, 'reason', %(reason)s::text,
        'at', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
    end
where b.run_id = %(run_id)s::uuid
returning b.run_id;

-- name: tune
update /* schema */x_backfills b
set options = coalesce(b.options, '{}') || %(changes)s::jsonb || jsonb_build_object('tuned', jsonb_build_object(
      'by', %(by)s::text, 'at', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))),
    updated_at = now()
where b.run_id = %(run_id)s::uuid and b.status in ('running', 'paused')
returning b.run_id;

-- name: park
-- A run that nobody works is parked here and now; it looks again in an hour by itself.
with parked as (
  update /* schema */x_jobs j
  set state = 'suspended', claimed_by = null, visible_at = null, run_at = now() + interval '1 hour',
      updated_at = now()
  where j.run_id = %(run_id)s::uuid and j.state || '' in ('ready', 'delayed', 'running', 'suspended')
  returning j.id
)
update /* schema */x_backfills b
set wanted = 'pause', status = 'paused', waiting_for = null, updated_at = now()
where b.run_id = %(run_id)s::uuid and (select count(*) from parked) >= 0
returning b.run_id;

-- name: unpark
-- `|| ''`, here and below, keeps the plan on the run's index: partial ones look empty to stale statistics.
with due as (
  update /* schema */x_jobs j
  set state = 'ready', run_at = now(), updated_at = now()
  where j.run_id = %(run_id)s::uuid and j.state || '' = 'suspended' and %(was_paused)s::boolean
  returning j.queue
)
update /* schema */x_backfills b
set wanted = 'run', status = 'running', updated_at = now()
where b.run_id = %(run_id)s::uuid
  and (select count(pg_notify('rowsweep_wake', q.queue)) from (select distinct d.queue from due d) q) >= 0
returning b.run_id;

-- name: reopen
-- A shard that had not heard of the end, and waits, goes on with the others.
with due as (
  update /* schema */x_jobs j
  set state = 'ready', attempt = 0, run_at = now(), last_error = null, last_error_code = null, stop_reason = null,
      updated_at = now()
  where j.run_id = %(run_id)s::uuid and j.state || '' in ('failed', 'dead', 'cancelled', 'suspended')
  returning j.queue
)
update /* schema */x_backfills b
set shards = (
      select jsonb_agg(
        case when e.value ->> 'status' in ('failed', 'cancelled') then e.value || '{"status": "running"}' else e.value end
        order by e.n)
      from jsonb_array_elements(b.shards) with ordinality e (value, n)),
    wanted = 'run', status = 'running', waiting_for = null, last_error = null, last_error_code = null,
    finished_at = null, updated_at = now()
where b.run_id = %(run_id)s::uuid
  and (select count(pg_notify('rowsweep_wake', q.queue)) from (select distinct d.queue from due d) q) >= 0
returning b.run_id;

-- name: cancel
with stopped as (
  update /* schema */x_jobs j
  set state = 'cancelled', claimed_by = null, visible_at = null,
      last_error = coalesce(%(reason)s::text, j.last_error),
      last_error_code = case when %(reason)s::text is null then j.last_error_code end,
      stop_reason = 'cancelled', updated_at = now()
  where j.run_id = %(run_id)s::uuid and j.state || '' in ('ready', 'delayed', 'running', 'suspended')
  returning j.id
)
update /* schema */x_backfills b
set wanted = 'cancel', status = 'cancelled', waiting_for = null,
    last_error = coalesce(%(reason)s::text, b.last_error),
    last_error_code = case when %(reason)s::text is null then b.last_error_code end,
    finished_at = now(), updated_at = now()
where b.run_id = %(run_id)s::uuid and (select count(*) from stopped) >= 0
returning b.run_id;
