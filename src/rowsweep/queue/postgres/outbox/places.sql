-- name: find
-- Where the outbox of a database is, and whether a whole queue is beside it.
select n.nspname::text,
       exists (select from pg_catalog.pg_class q where q.relnamespace = n.oid and q.relname = 'x_jobs')
from unnest(array[%(schema)s::text] || current_schemas(false)::text[]) with ordinality as p (name, position)
join pg_catalog.pg_namespace n on n.nspname = p.name
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'x_outbox' and c.relkind in ('r', 'p')
order by p.position
limit 1;

-- name: database
select d.oid::bigint, c.system_identifier::text
from pg_catalog.pg_database d, pg_catalog.pg_control_system() c
where d.datname = current_database();
