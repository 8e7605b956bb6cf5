"""A wire between a worker and its server that can be cut at the very moment of a commit."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Cut = Literal["before", "behind", "during"]

COMMIT = re.compile(rb"commit(?: and chain)?\0")
CHUNK = 65_536


class Wire:
    """Pass on what client and server say; `cut` breaks that many of the next commits of batches.

    `before`: the server never hears of the commit. `during`: it does, and the client is gone before it has decided.
    `behind`: it has committed, and its answer does not come through.
    """

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._host, self._port = str(given["host"]), int(given.get("port") or 5432)
        # A path of pytest's own may be longer than a socket's may be.
        self._folder = Path(tempfile.mkdtemp(prefix="wire-"))
        self.dsn = make_conninfo(dsn, host=str(self._folder), port=5432)
        self.broken = 0
        self._cuts: list[Cut] = []
        self._pairs: list[_Pair] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._start(self._accept)

    def cut(self, where: Cut, times: int = 1) -> None:
        """Break so many of the next commits."""
        with self._lock:
            self._cuts += [where] * times

    def hush(self) -> None:
        """Let nothing more through on the connections that are open, and leave them open; new ones work."""
        for pair in self._pairs:
            pair.is_hushed = True

    @property
    def is_cutting(self) -> bool:
        """Say whether a commit that is to be broken has not come yet."""
        return bool(self._cuts)

    def close(self) -> None:
        """Take no more connections; those that are open end with their processes."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            pair = _Pair(client, self._connect())
            self._pairs.append(pair)
            self._start(self._to_server, pair)
            self._start(self._to_client, pair)

    def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._host, self._port))

    def _to_server(self, pair: _Pair) -> None:
        """Pass on what the client says until one of both is gone, or a commit is to be broken."""
        with pair:
            while said := pair.client.recv(CHUNK):
                where = self._due() if COMMIT.search(said) else None
                if where == "before":
                    return
                pair.is_silenced |= where == "behind"
                if pair.is_hushed:
                    continue
                pair.server.sendall(said)
                if where == "during":
                    return

    def _to_client(self, pair: _Pair) -> None:
        """Pass on what the server says; an answer that is not to come through ends the connection."""
        with pair:
            while (said := pair.server.recv(CHUNK)) and not pair.is_silenced:
                if not pair.is_hushed:
                    pair.client.sendall(said)

    def _due(self) -> Cut | None:
        with self._lock:
            if not self._cuts:
                return None
            self.broken += 1
            return self._cuts.pop(0)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=target, args=args, name="rowsweep-test-wire", daemon=True).start()


class _Pair:
    """The two ends of one connection, with a thread for each way; the first to leave its block ends both."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_silenced = False
        self.is_hushed = False
        self._lock = threading.Lock()
        self._ways = 2

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        with self._lock:
            self._ways -= 1
            for end in (self.client, self.server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                if not self._ways:
                    end.close()
        return isinstance(error, OSError)
