"""The workers of an export's shards killed and stopped at random moments, then every row, byte and hash compared."""

from __future__ import annotations

import hashlib
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rowsweep as rs
from tests.acceptance.harness import Site
from tests.acceptance.sweeps.test_export_crash import FILL, GOODS, LEAST_SECONDS, MOST_SECONDS, copied
from tests.acceptance.sweeps.test_shards import ShardStorm

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ROWS = 120_000
_said = logging.getLogger("storm")


@pytest.mark.timeout(600)
def test_an_export_by_shards_is_one_copy_of_the_table_whoever_is_killed_and_stopped(site: Site) -> None:
    """N-087, N-093, N-094, N-095, N-096: no row missing, none twice, and no part beside those of the manifest.

    Each part's record is held for a moment between its rename and its checkpoint, so that most kills fall there.
    """
    site.fill(0, least=LEAST_SECONDS, most=MOST_SECONDS)
    site.rows = ROWS
    site.connection.execute(GOODS)
    site.connection.execute(FILL, [ROWS])
    site.connection.execute("analyze goods")
    site.launch("exporting-sharded")
    storm = ShardStorm(site)
    storm.rage(kills=14, stops=3)
    assert storm.done >= 8
    site.until(lambda: site.ledger()["status"] == "done", seconds=180)
    folder = site.folder / "exported"
    manifest = json.loads((folder / "_manifest.json").read_text())
    names = [part["name"] for part in manifest["parts"]]
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(["_SUCCESS", "_manifest.json", *names])
    assert {name.partition("part-")[0] for name in names} == {"", "s02-", "s03-"}
    for part in manifest["parts"]:
        data = (folder / part["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (part["bytes"], part["sha256"])
    expected = copied(site)
    exported = pa.concat_tables([pq.read_table(folder / name) for name in names])
    assert exported.cast(expected.schema).equals(expected)
    assert rs.read_export(folder, verify=True).collect().height == ROWS == manifest["rows"]
    ledger = site.ledger()
    assert (ledger["rows"], ledger["batches"]) == (ROWS, len(names))
    assert site.tries() > len(names)
    finish = site.one("select output from x_job_steps where name = 'sweep:finish'")["output"]
    assert (finish["rows"], finish["parts"], finish["shards"]) == (ROWS, len(names), 3)
    _said.warning("%s parts, %s written again, %s ranges", len(names), site.tries() - len(names), finish["ranges"])
