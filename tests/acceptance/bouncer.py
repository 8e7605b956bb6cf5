"""A real PgBouncer in transaction mode before the server under test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.acceptance.wire import Wire

PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
POOL = 3
CONFIG = """
[databases]
{database} = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
ignore_startup_parameters = extra_float_digits
"""


def program() -> str:
    """Answer where pgbouncer is; a machine without it fails the test."""
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    if found is None:
        pytest.fail("this test needs PgBouncer: apt-get install pgbouncer")
    return found


@contextmanager
def running(server_dsn: str, folder: Path) -> Iterator[str]:
    """Run a PgBouncer over the server; answers the DSN that leads through it.

    It runs as somebody else where the tests run as root, who cannot reach the server's socket: a wire leads there.
    """
    wire = Wire(server_dsn)
    socket_folder = Path(str(conninfo_to_dict(wire.dsn)["host"]))
    socket_folder.chmod(0o755)
    for path in socket_folder.iterdir():
        path.chmod(0o777)
    try:
        with _bouncer(wire.dsn, folder) as dsn:
            yield dsn
    finally:
        wire.close()


@contextmanager
def _bouncer(server_dsn: str, folder: Path) -> Iterator[str]:
    server = conninfo_to_dict(server_dsn)
    database, port = str(server.get("dbname") or "postgres"), _free_port()
    known = {name: server[name] for name in ("host", "port", "user", "password", "dbname") if server.get(name)}
    quoted = " ".join(f"{name}='{value}'" for name, value in known.items())
    config = folder / "pgbouncer.ini"
    config.write_text(CONFIG.format(database=database, server=quoted, port=port, pool=POOL))
    command = [program(), *_as_somebody(), str(config)]
    with (folder / "out.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    dsn = make_conninfo(host="127.0.0.1", port=port, dbname=database, user=str(server.get("user") or "postgres"))
    try:
        _wait_for(dsn, process, folder)
        yield dsn
    finally:
        process.terminate()
        process.wait(10)


def _as_somebody() -> list[str]:
    """PgBouncer refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["-u", "postgres" if any(user.pw_name == "postgres" for user in pwd.getpwall()) else "nobody"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(dsn: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    give_up_at = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > give_up_at:
                logs = "".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
                raise AssertionError(f"pgbouncer does not answer: {error}\n{logs}") from error
            time.sleep(0.05)
        else:
            return
