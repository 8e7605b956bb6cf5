"""Send one signed request, over httpx, and read what matters of the answer."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import httpcore
import httpx

from rowsweep.webhook.line import AddressRefused, Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowsweep.webhook.addresses import Allow

MAX_ANSWER_BYTES: Final = 64 * 1024
_WORDS: Final = {
    errno.ECONNREFUSED: "the connection was refused",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was reset",
    errno.EHOSTUNREACH: "no route leads there",
    errno.ENETUNREACH: "no route leads there",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status and the headers, their names in lower case."""

    status: int
    headers: Mapping[str, str]


class NoAnswer(Exception):
    """Nothing came back; the words say why, and name neither host nor address."""


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    connect_seconds: float,
    allow: Allow | None,
    opened: Callable[[Line], contextlib.AbstractContextManager[None]],
) -> Answer:
    """Send a POST and answer its status; NoAnswer where none came. Redirects are not followed, proxies not asked.

    `opened` holds the line while the request is under way. The answer's body is read up to 64 KiB, for as long as a
    few seconds, and thrown away: it is its sender's, and may say anything.
    """
    line = Line(allow)
    timeout = httpx.Timeout(None, connect=connect_seconds)
    try:
        request = httpx.Request(
            "POST", url, content=body, headers=dict(headers), extensions={"timeout": timeout.as_dict()}
        )
        # Sent without a client of httpx's, which would log the URL, and with it what of it is secret.
        with (
            opened(line),
            contextlib.closing(_Transport(line)) as transport,
            contextlib.closing(transport.handle_request(request)) as response,
        ):
            answer = Answer(response.status_code, {name.lower(): value for name, value in response.headers.items()})
            line.hurry()
            with contextlib.suppress(*_BROKEN):  # the status decides, whatever becomes of the body
                _drain(response)
            return answer
    except AddressRefused:
        raise NoAnswer("its address is not one that may be connected to") from None
    except _BROKEN as error:
        raise NoAnswer(_words(error, connect_seconds)) from None


_BROKEN: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpx.HTTPError,
    httpx.InvalidURL,
    UnicodeError,
)


class _Transport(httpx.BaseTransport):
    """One request over one line."""

    def __init__(self, line: Line) -> None:
        self._pool = httpcore.ConnectionPool(ssl_context=_trusted(), network_backend=line, http2=False, retries=0)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        response = self._pool.handle_request(sent)
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@cache
def _trusted() -> ssl.SSLContext:
    """Trust whom httpx trusts; `$SSL_CERT_FILE` and `$SSL_CERT_DIR` name others."""
    return httpx.create_ssl_context()


def _drain(response: httpx.Response) -> None:
    taken = 0
    for part in response.iter_raw():
        taken += len(part)
        if taken >= MAX_ANSWER_BYTES:
            return


def _words(error: BaseException, connect_seconds: float) -> str:
    cause = next((part for part in error.args if isinstance(part, OSError)), None)
    if isinstance(error, httpcore.ConnectTimeout):
        return f"no connection within {connect_seconds:g} s"
    if isinstance(cause, socket.gaierror):
        return "its host was not found"
    if isinstance(cause, ssl.SSLError):
        verdict = getattr(cause, "verify_message", None)
        return f"TLS failed ({verdict or cause.reason or 'no agreement'})"
    if cause is not None and cause.errno in _WORDS:
        return _WORDS[cause.errno]
    if isinstance(error, (httpcore.RemoteProtocolError, httpx.RemoteProtocolError)):
        return "it answered no HTTP"
    return f"the connection broke ({type(error).__name__})"
