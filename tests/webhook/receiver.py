"""A real HTTP server on loopback that behaves as it is told to, and badly where it is told to."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Behaviour = Callable[["Receiver", socket.socket], None]


@dataclass(frozen=True)
class Request:
    """What came in."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Take one request a connection; answer it by the behaviour at the time."""

    behaviour: Behaviour
    family: socket.AddressFamily = socket.AF_INET
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(
            ("127.0.0.1" if self.family is socket.AF_INET else "::1", 0), family=self.family
        )
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="rowsweep-test-receiver", daemon=True).start()

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.family is socket.AF_INET else "[::1]"
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}/hook?token=t0ken"

    def close(self) -> None:
        self.let_go.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._take, args=(connection,), name="rowsweep-test-taker", daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            held = connection if self.tls is None else self.tls.wrap_socket(connection, server_side=True)
            self.requests.append(_read(held))
            self.arrived.set()
            self.behaviour(self, held)
            held.close()


def answer(status: int, *headers: str, body: bytes = b"") -> Behaviour:
    """Answer with a status, headers and a body."""
    lines = [f"HTTP/1.1 {status} So", *headers, f"Content-Length: {len(body)}", "", ""]

    def behave(_: Receiver, connection: socket.socket) -> None:
        connection.sendall("\r\n".join(lines).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    return behave


def hang(receiver: Receiver, connection: socket.socket) -> None:
    """Answer nothing until it is let go, and notice when the other side leaves."""
    while not receiver.let_go.is_set():
        connection.settimeout(0.01)
        with contextlib.suppress(TimeoutError):
            if not connection.recv(1):
                receiver.gone.set()
                return
    connection.sendall(b"HTTP/1.1 204 So\r\n\r\n")


def reset(_: Receiver, connection: socket.socket) -> None:
    """Break the connection off."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def nonsense(_: Receiver, connection: socket.socket) -> None:
    """Answer something that is no HTTP."""
    connection.sendall(b"220 mail.shop ESMTP\r\n\r\n")


def endless(status: int) -> Behaviour:
    """Answer with a status and a body without end."""

    def behave(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 {status} So\r\nContent-Length: 1000000000000\r\n\r\n".encode())
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            receiver.gone.set()

    return behave


def stalled(status: int) -> Behaviour:
    """Answer with a status, and never with the body it promises."""

    def behave(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 {status} So\r\nContent-Length: 10\r\n\r\n12".encode())
        receiver.let_go.wait(60)

    return behave


def torn(status: int) -> Behaviour:
    """Answer with a status, and break off within the body."""

    def behave(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 {status} So\r\nContent-Length: 10\r\n\r\n12".encode())
        reset(receiver, connection)

    return behave


def _read(connection: Any) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            raise ConnectionAbortedError
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return Request(line, headers, body)
