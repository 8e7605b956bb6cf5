"""One command's way to the application: load what declares it, connect, and close."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import typer

from rowsweep.cli.loading import load_app

if TYPE_CHECKING:
    from rowsweep.app.app import App
    from rowsweep.cli.everywhere import Everywhere
    from rowsweep.cli.output import Output


class Session:
    """What a command works with: its flags, its output, and on demand the application."""

    def __init__(self, everywhere: Everywhere, output: Output) -> None:
        self.everywhere = everywhere
        self.output = output
        if everywhere.env is not None:
            os.environ["ROWSWEEP_ENV"] = everywhere.env

    def load(self, *, shipped: bool = False) -> list[str]:
        """Import what declares the application, and name its jobs and tasks that have none; answer the modules.

        With `shipped` the purge of rowsweep's own tables and its task are declared besides, as whatever serves does.
        """
        from rowsweep.jobs.registry import register_jobs
        from rowsweep.jobs.tasks.registry import register_tasks

        names = load_app(self.everywhere.apps)
        for module in [sys.modules[name] for name in names]:
            register_jobs(module)
            register_tasks(module)
        if shipped:
            from rowsweep.sweeps.purge.targets.own import declare_retention

            declare_retention()
        return names

    @contextmanager
    def app(
        self,
        *,
        declares: bool = False,
        shipped: bool = False,
        pooler: bool = False,
        announces: bool = True,
        outbox: str | None = None,
    ) -> Iterator[App]:
        """Connect, say so where that started the embedded server, and close afterwards.

        With `declares` the application's modules are imported first. Commands that only read or steer do without:
        a file that does not import must not keep an operator from cancelling a job. No worker is started here.
        """
        from rowsweep.app.connecting import connect

        if declares:
            self.load(shipped=shipped)
        app = connect(self.everywhere.dsn, schema=self.everywhere.schema, pooler=pooler, work=False, outbox=outbox)
        try:
            if announces and app.embedded is not None and app.embedded.started_by_us:
                self.output.note(app.announcement)
            yield app
        finally:
            app.close()


def session_of(context: typer.Context) -> Session:
    """Answer the session that the flags of every command made."""
    return cast("Session", context.find_root().obj)


def read_json(text: str | None, *, flag: str) -> Any:
    """Answer the value of a flag that takes JSON, None where it was not given; what is no JSON is a usage error."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        named, typed = (flag, f"{flag} ") if flag.startswith("-") else ("it", "")
        raise typer.BadParameter(f"{named} takes JSON: {error}. A text needs its quotes: {typed}'\"text\"'") from error
