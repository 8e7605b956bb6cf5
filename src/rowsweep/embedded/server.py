"""This process's share in the embedded server: start or join it, leave it, restart it."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rowsweep.embedded import cluster
from rowsweep.embedded.programs import EmbeddedUnavailable, Programs, find_programs
from rowsweep.embedded.shares import Share, is_used, locked


@dataclass(slots=True, eq=False)
class EmbeddedServer:
    """This process's share in the server of one folder.

    `dsn` stays the same while the server is stopped and started again. `announcement` is the one line for the
    user. `started_by_us` is false where the server was running already.
    """

    folder: Path
    dsn: str
    version: str
    started_by_us: bool
    announcement: str
    _programs: Programs = field(repr=False)
    _share: Share = field(repr=False)

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while it does not run."""
        server = cluster.find(self.folder)
        return server.pid if server else None

    def leave(self) -> None:
        """Give up this share, and stop the server when nobody else has one; at exit it happens by itself."""
        atexit.unregister(self.leave)
        if not self._share.is_held or not self.folder.exists():
            return
        with locked(self.folder):
            self._share.give_up()
            if not is_used(self.folder):
                cluster.stop(self._programs, "fast")

    def stop(self, mode: cluster.ShutdownMode = "fast") -> None:
        """Stop the server now, whoever uses it, and keep this share; `immediate` is what a crash would do."""
        with locked(self.folder):
            cluster.stop(self._programs, mode)

    def restart(self, mode: cluster.ShutdownMode = "fast") -> None:
        """Stop the server if it runs, and start it again at the same address."""
        with locked(self.folder):
            cluster.stop(self._programs, mode)
            cluster.launch(self._programs)


def start(folder: Path | None = None, *, settings: Mapping[str, str] | None = None) -> EmbeddedServer:
    """Start the server of `folder` (`./.rowsweep`, the data in its `pg/`), or join the one that runs.

    It outlives this process for as long as others use it; one that a crash left running is taken over. `settings`
    go into a data folder that is made anew, over `cluster.SETTINGS`. Raise `EmbeddedUnavailable` where the wheel
    is missing or the server cannot run.
    """
    home = (folder or Path(".rowsweep")).absolute()
    try:
        _make_home(home)
        with locked(home):
            return _start(find_programs(home), {**cluster.SETTINGS, **(settings or {})})
    except OSError as error:
        cause = f"The embedded Postgres cannot use {home}: {error}."
        raise EmbeddedUnavailable(cause, "choose a folder of your own, or give connect() a DSN") from error


def _make_home(home: Path) -> None:
    """Make a folder that git ignores; one that is there already under another name may hold more than ours."""
    is_ours = home.name == ".rowsweep" or not home.exists()
    home.mkdir(parents=True, exist_ok=True)
    ignore = home / ".gitignore"
    if is_ours and not ignore.exists():
        ignore.write_text("*\n")


def _start(programs: Programs, settings: Mapping[str, str]) -> EmbeddedServer:
    home = programs.home
    if not (home / "pg" / "PG_VERSION").exists():
        cluster.create(programs, settings)
    was_used = is_used(home)
    found = cluster.find_answering(programs)
    running = found or cluster.launch(programs)
    version = programs.version()
    how = "started" if found is None else "joined" if was_used else "taken over from a process that crashed"
    server = EmbeddedServer(
        folder=home,
        dsn=f"postgresql://postgres@/postgres?host={quote(str(running.sockets), safe='')}&port={cluster.PORT}",
        version=version,
        started_by_us=found is None,
        announcement=f"Embedded PostgreSQL {version} {how} in {home / 'pg'}",
        _programs=programs,
        _share=Share.take(home),
    )
    atexit.register(server.leave)
    return server
