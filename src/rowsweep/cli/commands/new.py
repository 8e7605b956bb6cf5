"""`rowsweep new`: start a file that declares a sweep."""

from __future__ import annotations

import keyword
import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from rowsweep.cli.everywhere import EPILOG
from rowsweep.cli.loading import BACKFILLS
from rowsweep.cli.session import session_of
from rowsweep.errors import InvalidOption
from rowsweep.jobs.registry import check_name

_new = typer.Typer(no_args_is_help=True, help="Start a file that declares a sweep.")


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    application.add_typer(_new, name="new")


@_new.command("backfill", epilog=EPILOG)
def backfill(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
) -> None:
    """Write backfills/<name>.py, a backfill to fill in."""
    check_name(name, kind="backfill")
    file = Path(BACKFILLS) / f"{_identifier(name)}.py"
    file.parent.mkdir(exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(backfill_text(name))
    except FileExistsError:
        raise InvalidOption(
            f"{file} exists, and is left as it is.",
            fix=f"edit it, or choose another name: rowsweep new backfill {_identifier(name).replace('_', '-')}-2",
            meta={"file": str(file)},
        ) from None
    typed = shlex.quote(name)
    output = session_of(context).output
    output.answer({"file": str(file), "name": name}, f"Wrote {file}. Fill it in, then: rowsweep sweeps preview {typed}")


def backfill_text(name: str) -> str:
    """Answer the text of a file that declares a backfill of this name."""
    template = resources.files("rowsweep.cli").joinpath("templates/backfill.txt").read_text(encoding="utf-8")
    spelled = name.replace("\\", "\\\\").replace('"', '\\"')
    return (
        template.replace("@TYPED@", shlex.quote(name))
        .replace("@NAME@", spelled)
        .replace("@ATTRIBUTE@", _identifier(name))
    )


def _identifier(name: str) -> str:
    """Answer the nearest name that Python takes, in lower case: of a module and of what it declares."""
    plain = re.sub(r"\W+", "_", name.casefold(), flags=re.ASCII).strip("_") or "backfill"
    if plain[0].isdigit() or keyword.iskeyword(plain) or plain == "rs":
        return f"backfill_{plain}"
    return plain
