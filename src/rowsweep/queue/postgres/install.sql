-- name: lock
-- One installer at a time in a database; the lock ends with the transaction, so it also holds behind a pooler.
select pg_advisory_xact_lock(hashtextextended('rowsweep schema install', 0))::text;

-- name: schema_exists
select to_regnamespace(quote_ident(%(schema)s::text)) is not null;

-- name: others
-- A schema named by mistake would get a queue that nobody works.
select n.nspname::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relname = 'x_schema' and c.relkind = 'r' and n.nspname <> %(schema)s::text
order by n.nspname;

-- name: tables
select c.relname::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s::text and c.relname = any (%(tables)s::text[]) and c.relkind in ('r', 'p');

-- name: note
insert into /* schema */x_schema (version, name, checksum, install_id, applied_at)
values (%(version)s::integer, %(name)s::text, %(checksum)s::text, %(install_id)s::uuid, statement_timestamp())
returning version;
