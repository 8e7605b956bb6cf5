"""The oldest servers that are served, where the system has their programs: the embedded one is the newest."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEM = Path("/usr/lib/postgresql")  # Debian's
SERVERS: list[Path | None] = [folder.parent for folder in SYSTEM.glob("*/bin") if (folder / "initdb").exists()]
SUITE = [
    "tests/postgres/statements/test_sql.py", "tests/postgres/statements/test_arrays.py",
    "tests/postgres/test_install.py",
    "tests/postgres/test_copied.py", "tests/postgres/statements/test_message.py", "tests/queue/test_claim.py",
    "tests/queue/test_settle.py", "tests/queue/stores/test_events.py", "tests/sweeps/keyset/test_keys.py",
    "tests/sweeps/shards/test_ranges.py",
]  # fmt: skip
SETTINGS = "-c listen_addresses= -c fsync=off -c synchronous_commit=off -c max_connections=100"


class Server:
    """A server of a version of the system's, on a socket in a folder of its own."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs / "bin"
        self._folder = folder
        self._account = "postgres" if os.geteuid() == 0 else None
        if self._account is not None:
            account = pwd.getpwnam(self._account)
            os.chown(folder, account.pw_uid, account.pw_gid)
        self.dsn = f"postgresql://postgres@/postgres?host={folder}"

    def start(self) -> None:
        """Make its data and let it run."""
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
        self._run("pg_ctl", "start", "--wait", "-o", f"{SETTINGS} -c unix_socket_directories={self._folder}")

    def stop(self) -> None:
        """End it."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self._folder / 'data'}", *arguments]
        with (self._folder / "log").open("a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd="/", user=self._account)


@pytest.fixture(params=SERVERS or [None], ids=lambda folder: folder.name if folder else "none")
def older(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running server of each version that the system has."""
    if request.param is None:
        pytest.skip("this system has no server's programs in /usr/lib/postgresql")
    folder = Path(tempfile.mkdtemp(prefix="rowsweep-"))
    server = Server(request.param, folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_statements_and_the_order_of_keys_hold_on_the_system_s_server(older: Server) -> None:
    """S-437, N-053: array parameters, plans of statements, and keys that an ICU collation orders otherwise."""
    environment = {**os.environ, "ROWSWEEP_TEST_DSN": older.dsn}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *SUITE]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
