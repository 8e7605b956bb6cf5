"""The flags that every command takes, before or after its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

EPILOG: Final = "Every command also takes --dsn, --schema, --app, --env, --json and --no-color: see rowsweep --help."

_WITH_VALUE: Final = ("--dsn", "--schema", "--app", "--env")
_ALONE: Final = ("--json", "--no-color")


@dataclass(frozen=True, slots=True, kw_only=True)
class Everywhere:
    """What the flags of every command said.

    `apps` are modules or paths that declare; none means `[tool.rowsweep] app`, else `backfills/*.py`. `env` stands in
    for `$ROWSWEEP_ENV`.
    """

    dsn: str | None = None
    schema: str | None = None
    apps: tuple[str, ...] = ()
    env: str | None = None
    is_json: bool = False
    is_coloured: bool = True


def hoisted(arguments: Sequence[str]) -> list[str]:
    """Answer the arguments with the flags of every command moved to the front, where the parser knows them.

    What follows a `--` is left alone.
    """
    front: list[str] = []
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            rest += [argument, *left]
        elif argument in _ALONE or argument.startswith(tuple(f"{flag}=" for flag in _WITH_VALUE)):
            front.append(argument)
        elif argument in _WITH_VALUE:
            value = list(islice(left, 1))
            if not value:
                return [*front, argument]
            front += [argument, *value]
        else:
            rest.append(argument)
    return front + rest


def places_in(arguments: Sequence[str]) -> list[str]:
    """Answer the flags of a command line that say where rowsweep's tables are."""
    before = list(islice(arguments, arguments.index("--") if "--" in arguments else None))
    return [flag for flag in ("--dsn", "--schema") if any(one == flag or one.startswith(f"{flag}=") for one in before)]


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Say whether a refusal of this command line is to be JSON, also where it could not be parsed."""
    return "--json" in islice(arguments, arguments.index("--") if "--" in arguments else None)
