"""Exporting workers killed at random and at chosen moments, then every row, byte and hash compared."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import rowsweep as rs
from tests.acceptance.harness import Process, Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

LEAST_SECONDS, MOST_SECONDS = 0.05, 0.15
# A part's record is stored between its rename and its checkpoint: held there for a moment, a kill can be aimed there.
GOODS = """
create table goods (id bigint primary key, note text, amount numeric(12, 2), at timestamptz);
create trigger slow after insert on x_job_steps for each row when (new.kind = 'part') execute function slow();
"""
FILL = """
insert into goods
select i, case when i %% 7 = 0 then null when i %% 5 = 0 then '' else 'a "note", no ' || i end,
       i / 8.0, timestamptz '2024-01-01' + i * interval '1 millisecond' from generate_series(1, %s) i"""
TYPES = {"id": pa.int64(), "note": pa.string(), "amount": pa.decimal128(12, 2), "at": pa.timestamp("us", "UTC")}


class Reader:
    """Read every part that shows, all the time, as somebody would who does not wait for the end."""

    def __init__(self, folder: Path) -> None:
        self.reads = 0
        self.broken: list[str] = []
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.wait(0.005):
            for file in sorted(self._folder.glob("*.parquet"))[-2:]:
                try:
                    pq.read_table(file)
                    self.reads += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, the reader saw a broken part
                    self.broken.append(f"{file.name}: {error}")

    def stop(self) -> None:
        """Read no more."""
        self._over.set()
        self._thread.join()


def copied(site: Site) -> pa.Table:
    """Answer what one COPY of the same query says, in key order."""
    lines = io.BytesIO()
    query = "copy (select id, note, amount, at from goods order by id) to stdout (format csv)"
    with psycopg.connect(site.dsn) as connection:
        connection.execute("set timezone = 'UTC'")
        with connection.cursor().copy(query) as copy:
            for data in copy:
                lines.write(data)
    lines.seek(0)
    options = csv.ConvertOptions(
        column_types=TYPES, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(lines, csv.ReadOptions(column_names=list(TYPES)), convert_options=options)


class Storm:
    """Kill whoever exports, every third time between what it wrote and the checkpoint, and start another."""

    def __init__(self, site: Site, progress: Callable[[], int]) -> None:
        self.between = 0
        self._site = site
        self._progress = progress
        self._names = count()
        seed = secrets.randbits(32)
        logging.getLogger("storm").warning("seed %s", seed)
        self._random = random.Random(seed)

    def rage(self, kills: int) -> None:
        """Kill so many times, at random moments over the first four fifths of the rows."""
        for _ in range(3):
            self._start()
        share = 0.8 * self._site.rows / kills
        for number in range(kills):
            wanted = min(self._progress() + self._random.uniform(0.1, 1.0) * share, self._site.rows)
            self._site.until(lambda wanted=wanted: self._progress() >= wanted)  # type: ignore[misc]
            if number % 3 == 0:
                self._site.until(self._between).kill()
                self.between += 1
            else:
                holder = self._site.until_held()
                time.sleep(self._random.uniform(0.0, 0.1))
                holder.kill()
            self._start()

    def _start(self) -> None:
        self._site.worker(f"w{next(self._names)}", visibility="2s")

    def _between(self) -> Process | None:
        asleep = "select max(application_name) as name from pg_stat_activity where wait_event = 'PgSleep'"
        name = self._site.one(asleep)["name"]
        return next((one for one in self._site.processes if one.name == name and one.code is None), None)


def weather(site: Site, name: str, *, rows: int, kills: int) -> tuple[Storm, Reader]:
    """Launch an export and let a storm go over it while somebody reads, then wait for its end."""
    site.fill(0, least=LEAST_SECONDS, most=MOST_SECONDS)
    site.rows = rows
    site.connection.execute(GOODS)
    site.connection.execute(FILL, [rows])
    site.connection.execute("analyze goods")
    site.launch(name)
    reader = Reader(site.folder / "exported")
    storm = Storm(site, site.swept if name == "exporting" else lambda: by_hand(site))
    try:
        storm.rage(kills)
        site.until_state("done", seconds=180)
    finally:
        reader.stop()
    return storm, reader


def assert_survived(site: Site, storm: Storm, reader: Reader) -> None:
    """Assert that the folder holds one COPY of the table, as its manifest says, and nothing else."""
    folder = site.folder / "exported"
    manifest = json.loads((folder / "_manifest.json").read_text())
    parts: list[dict[str, Any]] = manifest["parts"]
    assert {entry.name for entry in folder.iterdir()} == {
        "_SUCCESS", "_manifest.json", *(part["name"] for part in parts),
    }  # fmt: skip
    for part in parts:
        data = (folder / part["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (part["bytes"], part["sha256"])
    exported = pa.concat_tables([pq.read_table(folder / part["name"]) for part in parts])
    expected = copied(site)
    assert exported.cast(expected.schema).equals(expected)
    assert rs.read_export(folder, verify=True).collect().height == site.rows == manifest["rows"]
    ledger = site.ledger()
    assert (ledger["status"], ledger["rows"], ledger["batches"]) == ("done", site.rows, len(parts))
    assert site.tries() - len(parts) >= storm.between > 0
    assert reader.broken == []
    assert reader.reads > 0


def by_hand(site: Site) -> int:
    """Answer how many rows the checkpoint of the hand-written job counts."""
    return int(site.one("select coalesce(max((output ->> 'last')::bigint), 0) as rows from x_job_steps")["rows"])


@pytest.mark.timeout(600)
def test_an_export_is_whole_through_thirty_kills(site: Site) -> None:
    """N-093, N-094, N-095, N-096, S-187: the rows of one COPY, no part twice, none missing, none ever broken."""
    assert_survived(site, *weather(site, "exporting", rows=60_000, kills=30))


@pytest.mark.timeout(300)
def test_the_same_storm_finds_rows_twice_where_a_part_s_range_and_name_are_not_stored(site: Site) -> None:
    """D-7, N-093: the control: a storm that finds nothing here would prove nothing there."""
    weather(site, "exporting-apart", rows=20_000, kills=10)
    counts: Counter[int] = Counter()
    for file in (site.folder / "exported").glob("*.parquet"):
        if file.stat().st_size:  # a kill may have left one that was opened and no more
            counts.update(pq.read_table(file)["id"].to_pylist())
    assert max(counts.values()) > 1
