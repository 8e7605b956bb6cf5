create table /* schema */x_schema (
  version integer primary key,
  name text not null,
  checksum text not null,
  install_id uuid not null,
  applied_at timestamptz not null
);

create table /* schema */x_jobs (
  id uuid primary key,
  name text not null,
  queue text not null default 'default',
  priority smallint not null default 0,
  state text not null
    check (state in ('ready', 'delayed', 'running', 'suspended', 'done', 'failed', 'dead', 'cancelled')),
  input jsonb not null,
  idempotency_key text not null,
  tenant_id text,
  concurrency_key text,
  run_id uuid not null,
  attempt integer not null default 0,
  max_attempts integer not null,
  claims bigint not null default 0,
  claimed_by text,
  visible_at timestamptz,
  run_at timestamptz not null,
  progress jsonb,
  result jsonb,
  last_error text,
  last_error_code text,
  stop_reason text,
  traceparent text,
  enqueued_by text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  started_at timestamptz,
  check ((state = 'running') = (claimed_by is not null))
) with (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0.02
);

create unique index x_jobs_name_tenant_idempotency_live_idx
  on /* schema */x_jobs (name, coalesce(tenant_id, ''), idempotency_key)
  where state in ('ready', 'delayed', 'running', 'suspended');

create index x_jobs_claim_idx
  on /* schema */x_jobs (queue, name, priority desc, run_at, id)
  where state in ('ready', 'delayed', 'suspended');

-- Without visible_at: a renewal must stay a HOT update.
create index x_jobs_running_idx on /* schema */x_jobs (queue, id) where state = 'running';

create index x_jobs_created_idx on /* schema */x_jobs (created_at, id);

create index x_jobs_run_idx on /* schema */x_jobs (run_id);

create index x_jobs_finished_idx
  on /* schema */x_jobs (state, updated_at, id)
  where state in ('done', 'failed', 'dead', 'cancelled');

create table /* schema */x_job_steps (
  run_id uuid not null,
  name text not null,
  kind text not null,
  status text not null,
  output jsonb,
  attempts integer not null default 0,
  error text,
  started_at timestamptz not null,
  completed_at timestamptz,
  wake_at timestamptz,
  event text,
  correlation_key text,
  primary key (run_id, name)
) with (fillfactor = 70);

create index x_job_steps_waiting_idx
  on /* schema */x_job_steps (event, correlation_key)
  where status = 'waiting' and event is not null;

create table /* schema */x_backfills (
  run_id uuid primary key,
  name text not null,
  kind text not null,
  checksum text not null,
  app_version text,
  environment text not null,
  status text not null,
  wanted text not null default 'run',
  waiting_for text,
  rows bigint not null default 0,
  written bigint not null default 0,
  batches bigint not null default 0,
  cursor jsonb,
  estimated_rows bigint,
  estimate_source text,
  active_seconds double precision not null default 0,
  samples jsonb not null default '[]',
  shards jsonb,
  input jsonb,
  options jsonb,
  rejected jsonb not null default '[]',
  rejected_rows integer not null default 0,
  launched_by text,
  last_error text,
  last_error_code text,
  started_at timestamptz not null,
  updated_at timestamptz not null,
  finished_at timestamptz
) with (fillfactor = 70);

create index x_backfills_name_idx on /* schema */x_backfills (name, started_at desc);

create index x_backfills_open_idx on /* schema */x_backfills (status) where status in ('running', 'paused');

create table /* schema */x_outbox (
  id uuid primary key,
  name text not null,
  queue text not null default 'default',
  priority smallint not null default 0,
  input jsonb not null,
  idempotency_key text not null,
  tenant_id text,
  concurrency_key text,
  run_id uuid not null,
  max_attempts integer not null,
  run_at timestamptz,
  traceparent text,
  enqueued_by text,
  created_at timestamptz not null default now(),
  claimed_by text,
  lease_until timestamptz,
  attempts integer not null default 0,
  last_error text,
  published_at timestamptz,
  dead_at timestamptz
) with (fillfactor = 70);

create index x_outbox_pending_idx on /* schema */x_outbox (id) where published_at is null and dead_at is null;

create index x_outbox_published_idx on /* schema */x_outbox (published_at) where published_at is not null;

create table /* schema */x_scheduler_state (
  task text primary key,
  watermark timestamptz not null,
  updated_at timestamptz not null
);

create table /* schema */x_scheduler_leader (
  name text primary key default 'scheduler',
  holder text not null,
  acquired_at timestamptz not null,
  expires_at timestamptz not null
);

create table /* schema */x_job_leases (
  lease_key text not null,
  slot integer not null,
  holder text not null,
  job_id uuid not null,
  expires_at timestamptz not null,
  primary key (lease_key, slot)
);

create table /* schema */x_job_events (
  id uuid primary key,
  name text not null,
  correlation_key text,
  payload jsonb not null,
  published_at timestamptz not null,
  expires_at timestamptz not null,
  xid xid8 not null default pg_current_xact_id()
);

create index x_job_events_lookup_idx on /* schema */x_job_events (name, correlation_key, published_at);

create index x_job_events_expiry_idx on /* schema */x_job_events (expires_at);

create table /* schema */x_job_pauses (
  queue text,
  name text,
  paused_at timestamptz not null,
  paused_by text,
  reason text,
  check (queue is not null or name is not null)
);

create unique index x_job_pauses_key_idx
  on /* schema */x_job_pauses (coalesce(queue, ''), coalesce(name, ''));

create table /* schema */x_job_workers (
  id text primary key,
  host text not null,
  pid integer not null,
  app_version text,
  queues text[] not null,
  names text[] not null,
  concurrency jsonb not null,
  state text not null,
  in_flight integer not null,
  processed bigint not null,
  interrupted bigint not null,
  wake boolean not null,
  started_at timestamptz not null,
  seen_at timestamptz not null,
  expires_at timestamptz not null
);

create table /* schema */x_job_counters (
  tier text not null,
  bucket timestamptz not null,
  name text not null,
  shard smallint not null default 0,
  completed bigint not null default 0,
  retried bigint not null default 0,
  deferred bigint not null default 0,
  dead bigint not null default 0,
  dropped bigint not null default 0,
  refused bigint not null default 0,
  run_ms bigint not null default 0,
  max_run_ms bigint not null default 0,
  primary key (tier, bucket, name, shard)
);
