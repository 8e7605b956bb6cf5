create table if not exists /* schema */x_outbox (
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

create index if not exists x_outbox_pending_idx
  on /* schema */x_outbox (id) where published_at is null and dead_at is null;

create index if not exists x_outbox_published_idx
  on /* schema */x_outbox (published_at) where published_at is not null;
