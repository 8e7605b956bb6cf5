"""The network under one delivery: an address that was looked at, and sockets that an abort can cut."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import httpcore

from rowsweep.clock import real_monotonic

if TYPE_CHECKING:
    from rowsweep.webhook.addresses import Allow

BODY_SECONDS: Final = 5.0


class AddressRefused(Exception):
    """None of the host's addresses may be connected to."""


class Line(httpcore.NetworkBackend):
    """Connect to the very addresses that were resolved and allowed; nothing is resolved a second time."""

    def __init__(self, allow: Allow | None) -> None:
        self._allow = allow
        self._lock = threading.Lock()
        self._held: socket.socket | None = None
        self._is_cut = False
        self._patient_until: float | None = None

    def cut(self) -> None:
        """End what is under way, from another thread: whoever reads or writes is told at once."""
        with self._lock:
            self._is_cut = True
            _shut(self._held)

    def hurry(self) -> None:
        """Give what is still to come a few seconds: the answer is there, and only its body is left."""
        self._patient_until = real_monotonic() + BODY_SECONDS

    def patience(self, timeout: float | None) -> float | None:
        """Answer how long one read may take."""
        if self._patient_until is None:
            return timeout
        left = max(self._patient_until - real_monotonic(), 0.001)
        return left if timeout is None else min(left, timeout)

    def hold(self, sock: socket.socket) -> None:
        """Note the socket in use; one of a line that was cut is cut too."""
        with self._lock:
            self._held = sock
            if self._is_cut:
                _shut(sock)
                raise ConnectionAbortedError

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002 - none is ever given
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - none are ever given
    ) -> httpcore.NetworkStream:
        """Connect to the first allowed address that answers, all of them within the timeout."""
        give_up_at = None if timeout is None else real_monotonic() + timeout
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            return _Stream(self._connected(self._addresses(host, port), give_up_at), self)

    def _addresses(self, host: str, port: int) -> list[Any]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if self._allow is None:
            return found
        allowed = [one for one in found if self._allow(ip_address(str(one[4][0])))]
        if not allowed:
            raise AddressRefused
        return allowed

    def _connected(self, addresses: list[Any], give_up_at: float | None) -> socket.socket:
        failure: OSError = OSError("no address")
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            try:
                self.hold(sock)
                sock.settimeout(None if give_up_at is None else max(give_up_at - real_monotonic(), 0.001))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure


class _Stream(httpcore.NetworkStream):
    """One connection."""

    def __init__(self, sock: socket.socket, line: Line) -> None:
        self._sock = sock
        self._line = line

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _mapped(httpcore.ReadTimeout, httpcore.ReadError):
            self._sock.settimeout(self._line.patience(timeout))
            return self._sock.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return  # sending nothing would still take the error that the next read is to report
        with _mapped(httpcore.WriteTimeout, httpcore.WriteError):
            self._sock.settimeout(timeout)
            self._sock.sendall(buffer)

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            self._sock.settimeout(timeout)
            wrapped = ssl_context.wrap_socket(
                self._sock, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            try:
                self._line.hold(wrapped)
                wrapped.do_handshake()
            except BaseException:
                wrapped.close()
                raise
            return _Stream(wrapped, self._line)

    def get_extra_info(self, info: str) -> Any:  # noqa: ARG002 - a connection is used once, and speaks HTTP/1.1
        return None


def _shut(sock: socket.socket | None) -> None:
    """End a connection under its reader: closing its descriptor would not wake one."""
    if sock is not None:
        with contextlib.suppress(OSError):  # it has ended already
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


@contextlib.contextmanager
def _mapped(timed_out: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Raise httpcore's error with the system's own in it: its pool drops causes on the way out."""
    try:
        yield
    except TimeoutError as error:
        raise timed_out(error) from error
    except OSError as error:
        raise failed(error) from error
