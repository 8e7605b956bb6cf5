"""Exports into an object store: a real S3 server process, and one that answers errors."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from pyarrow import fs

import rowsweep as rs
from rowsweep.errors import DestinationTaken, PartChanged, SweepFailed
from rowsweep.sweeps.export import sharding
from rowsweep.sweeps.export.places.store import StoreDraft
from rowsweep.sweeps.passes.position import KeyRange
from rowsweep.sweeps.shards.ranges import KeySpace
from tests.sweeps.field import NOW, Field, until, wait_for

pytestmark = pytest.mark.slow

ORDERS = rs.Rows("orders")
_HOPS = ("content-length", "transfer-encoding", "connection", "expect")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of an S3 server in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or _answers(port), "the S3 server")
        assert process.poll() is None
        yield port
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


class _Passing(BaseHTTPRequestHandler):
    """Pass a request on to the server behind the gate."""

    protocol_version = "HTTP/1.1"
    gate: Gate

    def do_GET(self) -> None:
        body = self._body()
        if self.gate.is_closed and self.command in ("PUT", "POST"):
            self.gate.refused += 1
            self._answer(403, [], b"<Error><Code>AccessDenied</Code><Message>closed</Message></Error>")
            return
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
        asking = http.client.HTTPConnection("127.0.0.1", self.gate.server)
        asking.request(self.command, self.path, body, {**kept, "Content-Length": str(len(body))})
        answer = asking.getresponse()
        self._answer(answer.status, answer.getheaders(), answer.read())
        asking.close()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the base class looks for

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        is_head = self.command == "HEAD"
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOPS or (is_head and name.lower() == "content-length"):
                self.send_header(name, value)
        if not is_head:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Gate:
    """Stand before the server, and refuse every upload while it is closed."""

    def __init__(self, server: int) -> None:
        self.server = server
        self.refused = 0
        self.is_closed = False
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Passing,), {"gate": self}))
        self._http.daemon_threads = True
        self.port = int(self._http.server_address[1])
        Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def gate(server: int) -> Iterator[Gate]:
    """A gate before the server."""
    made = Gate(server)
    yield made
    made.close()


@pytest.fixture
def lake(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty prefix in a fresh bucket, through the gate."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"lake-{uuid4().hex}"
    uri = f"s3://{bucket}/orders?endpoint_override=127.0.0.1:{gate.port}&scheme=http&region=us-east-1"
    store = fs.S3FileSystem(
        endpoint_override=f"127.0.0.1:{gate.port}", scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    store.create_dir(bucket)
    return uri


def exporting(name: str, lake: str, **given: Any) -> rs.Export[Any]:
    """Declare an export of `orders` in parts of four keys, retried at once."""
    options: dict[str, Any] = {"rows": ORDERS, "to": lake, "part_rows": 4, "retry": NOW}
    return rs.export_rows(name, **(options | given))


def objects(lake: str) -> list[str]:
    """Answer the names under the prefix."""
    store, path = fs.FileSystem.from_uri(lake)
    return sorted(info.base_name for info in store.get_file_info(fs.FileSelector(path, allow_not_found=True)))


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
def test_an_export_goes_to_a_store_and_comes_back(field: Field, lake: str, form: str) -> None:
    """D-7, N-093, N-095, N-123: one object a part, each with the store's own checksum in its record."""
    field.orders(10)
    run = exporting("orders", lake, format=form).launch()
    totals = field.finish(run)
    parts = [f"part-0000{at}.{form}" for at in range(3)]
    assert objects(lake) == ["_SUCCESS", "_manifest.json", *parts]
    assert totals["manifest"] == f"{lake.partition('?')[0]}/_manifest.json"
    frame = rs.read_export(lake, verify=True).collect()
    assert frame["id"].to_list() == list(range(1, 11))
    assert frame["price"].to_list() == [price for (price,) in field.sql("select price from orders order by id")]
    assert all(field.steps(run)[f"part:0000{at}"].output["checksum"] for at in range(3))


def test_a_store_that_answers_errors_fails_the_attempt_and_the_run_goes_on_later(
    field: Field, lake: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-093, N-096: the error says what the store said; nothing half-written is under any name."""
    field.orders(10)
    run = exporting("orders", lake).launch()
    publish = StoreDraft.publish

    def closing(draft: StoreDraft) -> None:
        gate.is_closed = draft._name == "part-00001.parquet"
        publish(draft)

    with monkeypatch.context() as patch:
        patch.setattr(StoreDraft, "publish", closing)
        assert field.tick().outcome == "retried"
    assert gate.refused
    gate.is_closed = False
    assert objects(lake) == ["_rowsweep.json", "part-00000.parquet"]
    row = field.row(run)
    assert (row.status, row.batches) == ("running", 1)
    assert "ACCESS_DENIED" in (row.last_error or "")
    field.finish(run)
    assert objects(lake) == ["_SUCCESS", "_manifest.json", *(f"part-0000{at}.parquet" for at in range(3))]
    assert rs.read_export(lake, verify=True).collect()["id"].to_list() == list(range(1, 11))


def test_an_upload_whose_rows_went_before_it_was_checkpointed_is_taken_away(
    field: Field, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-093, N-095: put by a try that was cut off right behind it, and empty in the next one."""
    field.orders(10)
    run = exporting("orders", lake).launch()
    publish = StoreDraft.publish

    def cut_off(draft: StoreDraft) -> None:
        publish(draft)
        if draft._name == "part-00002.parquet":
            raise RuntimeError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(StoreDraft, "publish", cut_off)
        assert field.tick().outcome == "retried"
    assert "part-00002.parquet" in objects(lake)
    field.sql("delete from orders where id > 8")
    field.finish(run)
    assert objects(lake) == ["_SUCCESS", "_manifest.json", "part-00000.parquet", "part-00001.parquet"]


def test_a_late_upload_of_the_same_size_is_found_by_the_store_s_checksum(
    field: Field, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-123: what a stopped process put in the place of a part that was recorded."""
    field.orders(10)
    run = exporting("orders", lake).launch()
    publish = StoreDraft.publish

    def late(draft: StoreDraft) -> None:
        publish(draft)
        if draft._name == "part-00002.parquet":
            place = draft._place
            place.put("part-00000.parquet", bytes(place.sizes()["part-00000.parquet"]))

    monkeypatch.setattr(StoreDraft, "publish", late)
    with pytest.raises(SweepFailed, match=r"part-00000.* holds other bytes"):
        field.finish(run)
    assert field.row(run).last_error_code == PartChanged.code
    assert "_SUCCESS" not in objects(lake)


def test_a_store_is_taken_and_overwritten_as_a_folder_is(field: Field, lake: str) -> None:
    """N-095, N-124: another export's objects are refused, at the launch already, or replaced without a stale tail."""
    field.orders(10)
    first = exporting("first", lake).launch()
    field.finish(first)
    assert first.snapshot().destination == lake.partition("?")[0]
    with pytest.raises(DestinationTaken, match="'first'"):
        exporting("second", lake).launch()
    assert field.queue_sql("select count(*) from {x_backfills} where name = 'second'") == [(0,)]
    field.sql("delete from orders where id > 3")
    field.sweep(exporting("third", lake, overwrite=True))
    assert objects(lake) == ["_SUCCESS", "_manifest.json", "part-00000.parquet"]


def test_shards_upload_side_by_side_and_what_lies_behind_an_upload_is_taken_over(
    field: Field, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-087, N-093, N-123: an upload holds no lock, and is made once although its shard's range ends nearer by then."""
    field.orders(200)
    field.sql("analyze orders")
    monkeypatch.setattr(sharding, "_PARTS_WORTH_HALVING", 0)
    monkeypatch.setattr(
        KeySpace, "divide", lambda *_: [KeyRange(after=None, to=("20",)), KeyRange(after=("20",), to=None)]
    )
    began, go = Event(), Event()
    put: list[str] = []
    publish = StoreDraft.publish

    def held(draft: StoreDraft) -> None:
        put.append(draft._name)
        if draft._name == "s02-part-00000.parquet":
            began.set()
            wait_for(go)
        elif draft._name == "part-00000.parquet":
            wait_for(began)
        publish(draft)

    monkeypatch.setattr(StoreDraft, "publish", held)
    run = exporting("orders", lake, part_rows=20, shards=2).launch()
    with field.working(concurrency=2):
        wait_for(began)
        until(lambda: field.steps(run)["sweep:pages"].output["behind"], "a part taken over")
        go.set()
        assert run.wait("30s")["ranges"] > 2
    assert rs.read_export(lake, verify=True).collect()["id"].to_list() == list(range(1, 201))
    assert objects(lake) == sorted(["_SUCCESS", "_manifest.json", *put])
    assert all(step.output["checksum"] for name, step in field.steps(run).items() if name.startswith("part:"))
