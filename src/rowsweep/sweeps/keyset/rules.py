"""Rules on a swept table: what Postgres does in the place of a statement of ours cannot be counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from psycopg import sql

from rowsweep.errors import InvalidDeclaration
from rowsweep.sweeps.keyset.cursor import PlainCursor

if TYPE_CHECKING:
    from rowsweep.sweeps.keyset.catalog import Table

_RULES: Final = """
    select r.rulename
      from pg_catalog.pg_rewrite r
     where r.ev_class = pg_catalog.to_regclass(%(name)s) and r.ev_type = %(event)s and r.ev_enabled in ('O', 'A')
       and (r.is_instead or not %(instead)s)
     order by r.rulename"""
_EVENTS: Final = {"UPDATE": "2", "DELETE": "4"}


def refuse_rules(
    connection: Any, table: Table, event: Literal["UPDATE", "DELETE"], *, instead: bool, so: str, fix: str
) -> None:
    """Refuse a table with a rule for such a statement, or only with one that does something `instead`; `so` says why.

    Raises InvalidDeclaration.
    """
    name = sql.Identifier(table.schema, table.name).as_string(connection)
    asked = {"name": name, "event": _EVENTS[event], "instead": instead}
    names = [row[0] for row in PlainCursor(connection).execute(_RULES, asked)]
    if names:
        kind = f"a rule instead of {event}" if instead else f"a rule for {event}"
        raise InvalidDeclaration(
            f"{table.qualified} has {kind} ({', '.join(names)}), {so}.",
            fix=fix,
            meta={"table": table.qualified, "rules": names},
        )
