-- name: add
-- One that waited for the ledger row works on the list as it is then: the parts are read from the row itself.
update /* schema */x_backfills b
set (rejected, rejected_rows) = (
      select jsonb_agg(a.entry order by a.is_new, a.place), count(*)::integer
      from (
        select false as is_new, o.place, o.entry
        from jsonb_array_elements(b.rejected) with ordinality o (entry, place)
        where not exists (
          select
          from jsonb_array_elements(%(rows)s::jsonb) n (entry)
          where n.entry -> 'key' = o.entry -> 'key' and n.entry -> 'table' = o.entry -> 'table')
        union all
        select true, n.place, n.entry || jsonb_build_object(
          'at', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
        from jsonb_array_elements(%(rows)s::jsonb) with ordinality n (entry, place)
      ) a),
    updated_at = now()
where b.run_id = %(run_id)s::uuid
returning b.rejected_rows;

-- name: list
select b.rejected
from /* schema */x_backfills b
where b.run_id = %(run_id)s::uuid;

-- name: release
-- Other runs' lists, by name: whoever did a row, it needs no trying again.
update /* schema */x_backfills b
set (rejected, rejected_rows) = (
      select coalesce(jsonb_agg(o.entry order by o.place), '[]'), count(*)::integer
      from jsonb_array_elements(b.rejected) with ordinality o (entry, place)
      where o.entry ->> 'table' <> %(table)s::text
        or o.entry -> 'key' not in (select k.value from jsonb_array_elements(%(keys)s::jsonb) k))
from /* schema */x_backfills own
where own.run_id = %(run_id)s::uuid and b.name = own.name and b.input is not distinct from own.input
  and b.run_id <> own.run_id and b.rejected_rows > 0
returning b.run_id;
