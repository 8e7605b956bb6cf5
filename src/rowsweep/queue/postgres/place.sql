-- name: find_schema
-- The schema of an unnamed install is where the search path finds its tables. The catalog is read as a table, since
-- a name looked up before the installer's lock may be remembered as missing.
select coalesce(
  (select n.nspname::text
   from unnest(current_schemas(false)) with ordinality as p (name, position)
   join pg_catalog.pg_namespace n on n.nspname = p.name
   join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'x_schema'
   order by p.position
   limit 1),
  current_schema()::text);

-- name: find_install
select exists (
  select
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %(schema)s::text and c.relname = 'x_schema');

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

-- name: role_limit
-- How many connections the session's role may hold at once; a superuser is held by none.
select case when r.rolsuper or r.rolconnlimit < 0 then null else r.rolconnlimit end
from pg_catalog.pg_roles r
where r.rolname = session_user;
