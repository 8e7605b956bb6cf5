"""The data folder and the server process on it: make, launch, find, stop."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rowsweep.embedded.programs import EmbeddedUnavailable, Programs

ShutdownMode = Literal["fast", "immediate"]

SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "effective_cache_size": "1GB",
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "max_connections": "200",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
"""What a new data folder gets beyond Postgres's defaults, which are durable (fsync, synchronous_commit)."""

PORT = 5432  # only part of the socket's name: nothing listens on TCP
SOCKET_PATH_BYTES = 100  # the kernel's limit is 104 on macOS and 108 on Linux
POLL_SECONDS = 0.1
ANSWER_POLLS = 3_000  # crash recovery may come first
ORPHAN_TRIES = 50  # the backends of a killed server take a moment to notice
PLAIN_PATH = re.compile(r"[\w/.+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A live server: its process and the folder of its socket."""

    pid: int
    sockets: Path


def create(programs: Programs, settings: Mapping[str, str]) -> None:
    """Make the data folder, under another name first: one cut off half-way is never taken for a whole one."""
    fresh = programs.home / "pg.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    programs.give(fresh)
    values = [f"--set={name}={value}" for name, value in settings.items()]
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    access = ["--username=postgres", "--auth=trust"]
    sync = ["--no-sync"] if settings.get("fsync") == "off" else []
    programs.run("initdb", f"--pgdata={fresh}", *access, *locale, *values, *sync)
    fresh.rename(programs.home / "pg")


def launch(programs: Programs) -> Postmaster:
    """Start the server on its data folder; only the socket, in a folder of the owner's alone, leads to it."""
    _refuse_other_version(programs)
    sockets = _socket_folder(programs)
    _drop_strangers_locks(programs.home, sockets)
    options = f"-c listen_addresses= -c port={PORT} -c unix_socket_directories={sockets}"
    for left in reversed(range(ORPHAN_TRIES)):
        log_bytes = programs.log.stat().st_size if programs.log.exists() else 0
        try:
            programs.launch(options)
            break
        except EmbeddedUnavailable:
            said = programs.log.read_bytes()[log_bytes:]
            if b"is still in use" not in said or not left:
                raise
        _pause()
    server = find(programs.home)
    if server is None:
        raise EmbeddedUnavailable("The embedded Postgres ended as soon as it started.", f"read {programs.log}")
    return server


def find(home: Path) -> Postmaster | None:
    """Answer the server that runs on the folder, whoever started it."""
    pid, sockets = _lock_file(home)
    return None if pid is None or not _is_server(pid, sockets) else Postmaster(pid, Path(sockets))


def find_answering(programs: Programs) -> Postmaster | None:
    """Answer the server that runs on the folder, once one that is starting or stopping has got there."""
    server = find(programs.home)
    for _ in range(ANSWER_POLLS):
        if server is None:
            return None
        where = [f"--host={server.sockets}", f"--port={PORT}", "--username=postgres", "--timeout=1"]
        with contextlib.suppress(EmbeddedUnavailable):  # not yet; refused below where it never answers
            programs.run("pg_isready", *where)
            return server
        _pause()
        server = find(programs.home)
    cause = f"The embedded Postgres of {programs.home} does not answer."
    raise EmbeddedUnavailable(cause, f"end the process that {programs.home / 'pg' / 'postmaster.pid'} names")


def stop(programs: Programs, mode: ShutdownMode) -> None:
    """Stop the server if it runs; one that `fast` cannot stop within a minute is stopped as a crash would."""
    server = find(programs.home)
    if server is None:
        return
    try:
        programs.run("pg_ctl", "stop", "--wait", "--timeout=60", f"--mode={mode}")
    except EmbeddedUnavailable:
        if find(programs.home) == server:
            programs.run("pg_ctl", "stop", "--wait", "--timeout=60", "--mode=immediate")


def _lock_file(home: Path) -> tuple[int | None, str]:
    """Read postmaster.pid: the process id in its first line, the socket's folder in its fifth."""
    try:
        lines = (home / "pg" / "postmaster.pid").read_text().split("\n")
        return int(lines[0]), lines[4]
    except (FileNotFoundError, ValueError, IndexError):
        return None, ""


def _is_server(pid: int, sockets: str) -> bool:
    """Say whether a process is the server, and not one that has got its number since."""
    import psutil

    try:
        return f"unix_socket_directories={sockets}" in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return False


def _drop_strangers_locks(home: Path, sockets: Path) -> None:
    """Remove lock files whose number is another process's by now: Postgres would refuse to start.

    That is common after a reboot and the rule in a container. A dead number is left to Postgres's own checks, and
    so is shared memory that a dying server still holds.
    """
    import psutil

    pid, _ = _lock_file(home)
    if pid is not None and psutil.pid_exists(pid):
        (home / "pg" / "postmaster.pid").unlink()
    (sockets / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)


def _refuse_other_version(programs: Programs) -> None:
    data = programs.home / "pg"
    theirs = (data / "PG_VERSION").read_text().strip()
    ours = programs.version()
    if ours.split(".")[0] != theirs:
        cause = f"{data} holds the data of PostgreSQL {theirs}, and the installed wheel is {ours}."
        raise EmbeddedUnavailable(cause, f"mv {data} {data}-{theirs} to begin anew, or install that version")


def _socket_folder(programs: Programs) -> Path:
    """Answer where the socket lies: in the data folder, which only its owner enters.

    A path too long for a socket, or one that a shell or a list of hosts would take apart, gets a short one.
    """
    data = programs.home / "pg"
    if len(os.fsencode(data / f".s.PGSQL.{PORT}")) < SOCKET_PATH_BYTES and PLAIN_PATH.fullmatch(str(data)):
        return data
    name = f"rowsweep-{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"
    sockets = Path(tempfile.gettempdir()) / name
    with contextlib.suppress(FileExistsError):  # an earlier start made it; what it is is looked at below
        sockets.mkdir(mode=0o700)
        programs.give(sockets)
    found = sockets.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != programs.owner or found.st_mode & 0o077:
        cause = f"{sockets} is not a folder that only the server's account may enter."
        raise EmbeddedUnavailable(cause, f"remove {sockets}, or use a folder with a shorter path")
    return sockets


def _pause() -> None:
    threading.Event().wait(POLL_SECONDS)
