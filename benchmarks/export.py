"""How fast a table becomes Parquet, beside adbc, connectorx, polars and a server-side cursor in the same run.

Ours writes resumable parts with hashes and a manifest, the others one file. All have the same columns, zstd, and a
process of their own, which times itself from its first statement to its last byte; the peers run in an interpreter
with the versions of `constraints-peers.txt`.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from benchmarks.measure import Figure
from benchmarks.peers.interpreter import interpreter
from benchmarks.tables import ROUNDS, dsn, make_orders

_TABLE = "exported"
_FASTEST_OF = ("adbc", "connectorx", "polars")
_MEMORY_BAR_MB = 400.0


def _ours(folder: Path) -> dict[str, float]:
    shutil.rmtree(folder / "ours", ignore_errors=True)
    return _answer([sys.executable, "-m", "benchmarks.workers.export", dsn(), _TABLE, str(folder / "ours")])


def _peer(name: str, folder: Path) -> dict[str, float]:
    file = folder / "peer.parquet"
    file.unlink(missing_ok=True)
    parts = urlsplit(dsn())
    host = quote(parse_qs(parts.query)["host"][0], safe="")
    uri = f"postgresql://{parts.username}@{host}{parts.path}"  # connectorx wants the socket's folder as the host
    where = uri if name.startswith("connectorx") else dsn()
    return _answer([str(interpreter()), "-m", "benchmarks.peers.exports", name, where, _TABLE, str(file)])


def _answer(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


@cache
def measured() -> dict[str, list[dict[str, float]]]:
    """Run everybody once a round, ours first in every other one, and answer what each said."""
    make_orders(_TABLE)
    sides: dict[str, Callable[[Path], dict[str, float]]] = {"ours": _ours}
    for name in (*_FASTEST_OF, "connectorx-by-two", "cursor"):
        sides[name] = partial(_peer, name)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="rowsweep-bench-export-") as folder:
        for number in range(ROUNDS):
            for name in list(sides) if number % 2 == 0 else list(reversed(sides)):
                answer = sides[name](Path(folder))
                print(json.dumps({"export": name, **answer}), file=sys.stderr, flush=True)
                found[name].append(answer)
    return found


def _rate(name: str) -> float:
    return statistics.median(answer["rows"] / answer["seconds"] for answer in measured()[name])


def fastest() -> Figure:
    """Measure against the fastest of those that read over one connection and write one file."""
    reference = max(_rate(name) for name in _FASTEST_OF)
    return Figure(name="export.parquet", unit="rows/s", ours=_rate("ours"), reference=reference, bar=0.9)


def by_two() -> Figure:
    """Measure against connectorx over two connections at once, a half of the keys each, where ours has one."""
    reference = _rate("connectorx-by-two")
    return Figure(
        name="export.parquet.two-connections", unit="rows/s", ours=_rate("ours"), reference=reference, bar=0.9
    )


def cursor() -> Figure:
    """Measure against a server-side cursor, whose rows Python makes columns of."""
    return Figure(name="export.cursor", unit="rows/s", ours=_rate("ours"), reference=_rate("cursor"), bar=2.0)


def memory() -> Figure:
    """Measure the peak memory of the exporting process; the reference is the limit itself."""
    peak = max(answer["peak_mb"] for answer in measured()["ours"])
    return Figure(name="export.memory", unit="MB", ours=peak, reference=_MEMORY_BAR_MB, bar=1.0, better="lower")


FIGURES: dict[str, Callable[[], Figure]] = {
    "export.parquet": fastest,
    "export.parquet.two-connections": by_two,
    "export.cursor": cursor,
    "export.memory": memory,
}
