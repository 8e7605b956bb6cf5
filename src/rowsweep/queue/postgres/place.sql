-- name: find_schema
-- The schema of an unnamed install is where the search path finds its tables.
select coalesce(
  (select n.nspname::text
   from pg_catalog.pg_class c
   join pg_catalog.pg_namespace n on n.oid = c.relnamespace
   where c.oid = to_regclass('x_schema')),
  current_schema()::text);

-- name: find_install
select to_regclass(%(table)s::text) is not null;

-- name: versions
select s.version, s.name, s.checksum, s.install_id
from /* schema */x_schema s
order by s.version;

-- name: identify
-- A copy restored elsewhere keeps the install id, but neither the server's identifier nor the database's oid.
select s.install_id::text, d.oid::bigint, c.system_identifier::text
from /* schema */x_schema s, pg_catalog.pg_database d, pg_catalog.pg_control_system() c
where d.datname = current_database()
order by s.version
limit 1;
