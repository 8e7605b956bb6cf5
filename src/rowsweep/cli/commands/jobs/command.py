"""The group of `rowsweep jobs`: every command of it under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from rowsweep.cli.commands.jobs import enqueuing, listing, looking, moving, pausing
from rowsweep.cli.everywhere import EPILOG


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    jobs = typer.Typer(no_args_is_help=True, help="Look at jobs, and move them by hand.")
    commands: dict[str, Callable[..., Any]] = {
        "ls": listing.ls,
        "dead": listing.dead,
        "show": looking.show,
        "stats": looking.stats,
        "counters": looking.counters,
        "workers": looking.workers,
        "names": looking.names,
        "enqueue": enqueuing.enqueue,
        "cancel": moving.cancel,
        "requeue": moving.requeue,
        "promote": moving.promote,
        "rm": moving.rm,
        "pause": pausing.pause,
        "resume": pausing.resume,
        "pauses": pausing.pauses,
    }
    for name, command in commands.items():
        jobs.command(name, epilog=EPILOG)(command)
    application.add_typer(jobs, name="jobs")
