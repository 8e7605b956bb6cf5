"""The group of `rowsweep jobs`: every command of it under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from rowsweep.cli.commands.jobs import listing, looking, moving
from rowsweep.cli.everywhere import EPILOG


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    jobs = typer.Typer(no_args_is_help=True, help="Look at jobs, and move them by hand.")
    commands: dict[str, Callable[..., Any]] = {
        "ls": listing.ls,
        "dead": listing.dead,
        "show": looking.show,
        "stats": looking.stats,
        "workers": looking.workers,
        "names": looking.names,
        "cancel": moving.cancel,
        "requeue": moving.requeue,
        "rm": moving.rm,
    }
    for name, command in commands.items():
        jobs.command(name, epilog=EPILOG)(command)
    application.add_typer(jobs, name="jobs")
