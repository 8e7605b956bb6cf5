-- name: acquire
-- A lease that is another's and has not expired is left alone, and nothing is answered.
insert into /* schema */x_scheduler_leader as l (name, holder, acquired_at, expires_at)
values (%(name)s::text, %(holder)s::text, now(), now() + make_interval(secs => %(lease)s::double precision))
on conflict (name) do update
set holder = excluded.holder, expires_at = excluded.expires_at,
    acquired_at = case when l.holder = excluded.holder then l.acquired_at else excluded.acquired_at end
where l.holder = excluded.holder or l.expires_at <= now()
returning l.name;

-- name: release
delete from /* schema */x_scheduler_leader l
where l.name = %(name)s::text and l.holder = %(holder)s::text
returning l.name;

-- name: get
select l.name, l.holder, l.acquired_at, l.expires_at
from /* schema */x_scheduler_leader l
where l.name = %(name)s::text and l.expires_at > now();

-- name: try_advisory_lock
-- Held by the session that asks, until it unlocks or ends.
select pg_try_advisory_lock(%(key)s::bigint);

-- name: advisory_unlock
select pg_advisory_unlock(%(key)s::bigint);

-- name: is_alive
select true;
