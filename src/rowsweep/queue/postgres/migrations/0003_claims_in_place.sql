-- A claim is a HOT update: it changes no value that an index holds. Whether a job has ended, how and when are columns of
-- their own, which stay as they are while it is claimed. The table is rewritten once, locked against all for as long
-- as that takes.
drop index
  /* schema */x_jobs_name_tenant_idempotency_live_idx, /* schema */x_jobs_claim_idx, /* schema */x_jobs_running_idx,
  /* schema */x_jobs_finished_idx;

alter table /* schema */x_jobs
  add column ended_as text generated always as
    (case when state in ('done', 'failed', 'dead', 'cancelled') then state end) stored,
  add column ended_at timestamptz generated always as
    (case when state in ('done', 'failed', 'dead', 'cancelled') then updated_at end) stored;

-- From here on a waiting row leaves room for the version that its claim makes; rows that are there stay as close.
alter table /* schema */x_jobs set (fillfactor = 40);

create unique index x_jobs_name_tenant_idempotency_live_idx
  on /* schema */x_jobs (name, coalesce(tenant_id, ''), idempotency_key)
  where ended_as is null;

create index x_jobs_claim_idx
  on /* schema */x_jobs (queue, name, priority desc, run_at, id)
  where ended_as is null;

create index x_jobs_finished_idx
  on /* schema */x_jobs (ended_as, ended_at, id)
  where ended_as is not null;

-- Where running rows are found without an index of them: what a claim took, in one row. Every running job is in a
-- list of its queue; a list may also name jobs that have ended. Lists are never changed, only dropped and made anew.
create table /* schema */x_job_claims (
  queue text not null,
  id uuid not null default gen_random_uuid(),
  jobs uuid[] not null,
  primary key (queue, id)
);

-- Ids do not compress.
alter table /* schema */x_job_claims alter column jobs set storage external;

insert into /* schema */x_job_claims (queue, jobs)
select j.queue, array_agg(j.id)
from /* schema */x_jobs j
where j.state = 'running'
group by j.queue;
