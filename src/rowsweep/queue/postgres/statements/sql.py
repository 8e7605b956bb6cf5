"""Load the queries of the `.sql` files beside the stores, by name, with the schema put in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, LiteralString

from psycopg.sql import Identifier

SCHEMA_MARK: Final = "/* schema */"
_PREPARE: Final = {"planned for its values": False, "prepared at once": True}
_NAME: Final = re.compile(rf"^-- name: (\w+)(?: \(({'|'.join(_PREPARE)})\))?[^\n]*\n", re.MULTILINE)
_WRITES: Final = re.compile(r"\b(insert|update|delete|copy)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One named query.

    `repeatable` says that it only reads, so a lost connection may be answered by a repeat. `prepare` is psycopg's:
    False for a query that is planned for each call's values, None to leave it to the connection, True for one that the
    driver's own connections prepare at its first use.
    """

    name: str
    text: LiteralString
    repeatable: bool
    prepare: bool | None = None


@cache
def load(module: str) -> dict[str, Statement]:
    """Answer the statements of the `.sql` file beside a module by name, each without its comments."""
    package, _, store = module.rpartition(".")
    parts = _NAME.split((files(package) / f"{store}.sql").read_text(encoding="utf-8"))
    return {
        name: _statement(name, body, prepare=_PREPARE.get(mark))
        for name, mark, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


@cache
def render(text: LiteralString, schema: str) -> LiteralString:
    """Put the quoted schema in front of every table of a query that takes values; a schema has one text."""
    prefix = f"{Identifier(schema).as_string()}.".replace("%", "%%")
    return text.replace(SCHEMA_MARK, prefix)


def render_script(text: str, schema: str | None) -> LiteralString:
    """Put the quoted schema, or nothing, in front of every table of a script that is sent without values."""
    prefix = "" if schema is None else f"{Identifier(schema).as_string()}."
    return text.replace(SCHEMA_MARK, prefix)


def _statement(name: str, body: str, *, prepare: bool | None) -> Statement:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    text = "\n".join(lines).strip().removesuffix(";")
    return Statement(name, text, repeatable=_WRITES.search(text) is None, prepare=prepare)
