-- name: acquire
-- The primary key alone says who gets a slot. An expired one whose holder's claim still stands is taken only together
-- with that claim, under its job row's lock: a fenced transaction under way is never cut in two. A row locked by one
-- counts as held. Answers whether any slot looked free, whether one was chosen, and the slot got.
with open as materialized (
  select s.slot, l.holder, l.job_id
  from generate_series(0, %(limit)s::integer - 1) as s (slot)
  left join /* schema */x_job_leases l on l.lease_key = %(key)s::text and l.slot = s.slot
  where l.slot is null or l.expires_at <= now() or l.holder = %(holder)s::text
  order by l.holder is not distinct from %(holder)s::text desc, l.slot is not null, random()
),
chosen as materialized (
  select o.slot, f.id as former
  from open o
  left join lateral (
    select j.id
    from /* schema */x_jobs j
    where j.id = o.job_id and o.holder <> %(holder)s::text
      and j.claimed_by || ':' || j.id::text || ':' || j.claims::text = o.holder
    offset 0
    for no key update skip locked
  ) f on true
  where f.id is not null or o.holder is null or o.holder = %(holder)s::text
    or (select true
        from /* schema */x_jobs j
        where j.id = o.job_id and j.claimed_by || ':' || j.id::text || ':' || j.claims::text = o.holder) is null
  limit 1
),
fenced as (
  update /* schema */x_jobs j
  set claims = j.claims + 1, visible_at = least(j.visible_at, now())
  from chosen c
  where j.id = any (array[c.former])
  returning j.id
),
taken as (
  insert into /* schema */x_job_leases as l (lease_key, slot, holder, job_id, expires_at)
  select %(key)s::text, c.slot, %(holder)s::text, %(job_id)s::uuid,
         now() + make_interval(secs => %(ttl)s::double precision)
  from chosen c
  where (select count(*) from fenced) >= 0
  on conflict (lease_key, slot) do update
  set holder = excluded.holder, job_id = excluded.job_id, expires_at = excluded.expires_at
  where l.expires_at <= now() or l.holder = excluded.holder
  returning l.slot
)
select exists (select from open), exists (select from chosen), (select t.slot from taken t);

-- name: renew
-- What has expired is not renewed, though nobody has taken it yet.
with asked as materialized (
  select a.lease_key, a.slot, a.holder, a.position
  from unnest(%(lease_key)s::text[], %(slot)s::integer[], %(holder)s::text[]) with ordinality
         as a (lease_key, slot, holder, position)
),
renewed as (
  update /* schema */x_job_leases l
  set expires_at = now() + make_interval(secs => %(ttl)s::double precision)
  from asked a
  where l.lease_key = a.lease_key and l.slot = a.slot and l.holder = a.holder and l.expires_at > now()
  returning a.position
)
select a.position, r.position is not null
from asked a
left join renewed r on r.position = a.position
order by a.position;

-- name: release
with asked as materialized (
  select a.lease_key, a.slot, a.holder, a.position
  from unnest(%(lease_key)s::text[], %(slot)s::integer[], %(holder)s::text[]) with ordinality
         as a (lease_key, slot, holder, position)
),
released as (
  delete from /* schema */x_job_leases l
  using asked a
  where l.lease_key = a.lease_key and l.slot = a.slot and l.holder = a.holder
  returning a.position
)
select a.position, r.position is not null
from asked a
left join released r on r.position = a.position
order by a.position;

-- name: holders
select l.slot, l.holder, l.job_id, l.expires_at
from /* schema */x_job_leases l
where l.lease_key = %(key)s::text and l.expires_at > now()
order by l.slot;
