"""The group of `rowsweep sweeps`: every command of it under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from rowsweep.cli.commands.ledger import watch
from rowsweep.cli.commands.sweeps import apply, declared, launching, rejected, steering, verify
from rowsweep.cli.everywhere import EPILOG


def add_to(application: typer.Typer) -> None:
    """Add the commands to the application."""
    sweeps = typer.Typer(no_args_is_help=True, help="See what is declared here, preview, launch and steer.")
    commands: dict[str, Callable[..., Any]] = {
        "ls": declared.ls,
        "show": steering.show,
        "preview": declared.preview,
        "launch": launching.launch,
        "pause": steering.pause,
        "resume": steering.resume,
        "cancel": steering.cancel,
        "tune": steering.tune,
        "apply": apply.apply,
        "rejected": rejected.rejected,
        "retry-rejected": rejected.retry_rejected,
        "verify": verify.verify,
        "watch": watch,
    }
    for name, command in commands.items():
        sweeps.command(name, epilog=EPILOG)(command)
    application.add_typer(sweeps, name="sweeps")
