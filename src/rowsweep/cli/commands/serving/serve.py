"""A command that serves until it is told to stop: logging, the drain's budget, readiness, signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rowsweep.cli.stopping import Signals, leave_server
from rowsweep.errors import InvalidOption
from rowsweep.options import duration

if TYPE_CHECKING:
    from socketserver import TCPServer

    from rowsweep.app.app import App
    from rowsweep.cli.session import Session

_COLLECT_EVERY: Final = 10_000

Drain = Annotated[str, typer.Option("--drain", metavar="SPAN", help="How long a stop waits for what still runs.")]
ReadyPort = Annotated[
    int | None,
    typer.Option("--ready-port", metavar="P", min=1, max=65535, help="Serve GET /ready: 200, or 503 while stopping."),
]
Pooler = Annotated[bool, typer.Option("--pooler", help="The DSN leads through a transaction pooler.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a command serves: whether the application is imported first, and what it connects to besides."""

    declares: bool = True
    pooler: bool = False
    outbox: str | None = None


def serve(
    session: Session,
    start: Callable[[App], None],
    *,
    drain: str,
    ready_port: int | None = None,
    how: Serving | None = None,
) -> None:
    """Start what a command serves, wait for SIGTERM or Ctrl-C, and drain within the budget.

    A database without the tables, or with older ones, is refused before anything is started: SchemaMissing,
    SchemaOutdated. The purge of rowsweep's own tables and its hourly task are declared beside what the application
    declares.
    """
    from rowsweep.lifecycle import configure_lifecycle, lifecycle
    from rowsweep.sweeps.purge.targets.own import declare_retention
    from rowsweep.telemetry.console import configure_logging

    duration(drain, option="drain")
    configure_logging(json=session.everywhere.is_json)
    configure_lifecycle(drain)
    chosen = how or Serving()
    bound: AbstractContextManager[Any] = nullcontext() if ready_port is None else _bound(ready_port)
    connected = session.app(declares=chosen.declares, pooler=chosen.pooler, outbox=chosen.outbox)
    with bound as server, connected as app, Signals(lambda: leave_server(app)) as signals:
        app.operate.pauses()  # refused here where there are no tables, which every loop would only log and wait for
        with nullcontext() if server is None else _answering(server):
            if chosen.declares:
                declare_retention()
            spare_collector()
            start(app)
            while signals.name is None:
                signals.wait()
            lifecycle().shutdown(signals.name)


def spare_collector() -> None:
    """Leave what is loaded by now out of garbage collections, and make these rarer, unless they are off.

    All of it lives for as long as the process; what runs make goes as its last reference does. With Python's own
    threshold the whole heap was walked once for some hundreds of short jobs.
    """
    import gc

    gc.collect()
    gc.freeze()
    most, *others = gc.get_threshold()
    if most:
        gc.set_threshold(max(most, _COLLECT_EVERY), *others)


@contextmanager
def _bound(port: int) -> Iterator[TCPServer]:
    """Take the port of GET /ready for the block, which is refused before anything is connected to."""
    import json
    from http.server import BaseHTTPRequestHandler
    from socketserver import TCPServer

    from rowsweep.lifecycle import lifecycle

    phases = lifecycle()

    class Answer(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            readiness, is_known = phases.readiness(), self.path == "/ready"
            body = json.dumps(readiness).encode() if is_known else b""
            self.send_response(404 if not is_known else 200 if readiness["ready"] else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a probe asks every few seconds."""

    class Server(TCPServer):
        allow_reuse_address = True

    try:
        server = Server(("127.0.0.1", port), Answer)
    except OSError as error:
        raise InvalidOption(
            f"--ready-port {port} cannot be served: {error.strerror}.",
            fix="--ready-port with a free port",
            meta={"option": "ready_port"},
        ) from error
    try:
        yield server
    finally:
        server.server_close()


@contextmanager
def _answering(server: TCPServer) -> Iterator[None]:
    """Answer GET /ready while the block runs, from the lifecycle that stood when the port was taken."""
    import threading

    threading.Thread(target=server.serve_forever, name="rowsweep-ready", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
