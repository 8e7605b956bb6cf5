"""Workers with an executor, and its processes, killed at random moments, and then every row counted."""

from __future__ import annotations

import logging
import os
import random
import secrets
import signal
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.acceptance.harness import Process, Site

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ROWS = 100_000
WORKER_KILLS, POOL_KILLS = 6, 6
_said = logging.getLogger("storm")


def pool_of(process: Process) -> list[int]:
    """Answer the pids of a worker's spawned processes."""
    with suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        pids = {int(pid) for file in (children, *tasks) for pid in file.read_text().split()}
        return [pid for pid in sorted(pids) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return []


@pytest.mark.timeout(500)
def test_every_row_is_written_once_through_killed_workers_and_killed_pools(site: Site) -> None:
    """N-058, N-060, S-323: the pages ahead are lost with whoever dies, never written twice and never skipped."""
    seed = int(os.environ.get("ROWSWEEP_STORM", secrets.randbits(32)))
    _said.warning("ROWSWEEP_STORM=%s", seed)
    chance, names = random.Random(seed), count()
    site.fill(ROWS, least=0.005, most=0.03)
    site.launch("by-executor")
    for _ in range(2):
        site.worker(f"w{next(names)}", visibility="1s")
    kinds = ["worker"] * WORKER_KILLS + ["pool"] * POOL_KILLS
    chance.shuffle(kinds)
    pools: set[int] = set()
    share = 0.9 * ROWS / len(kinds)
    for kind in kinds:
        wanted = site.swept() + int(chance.uniform(0.5, 1.0) * share)
        site.until_swept(wanted)
        time.sleep(chance.uniform(0.0, 0.1))
        holder = site.until_held()
        children = pool_of(holder)
        pools.update(children)
        if kind == "worker":
            holder.kill()
            site.worker(f"w{next(names)}", visibility="1s")
        elif children:
            os.kill(chance.choice(children), signal.SIGKILL)
    site.until_state("done", seconds=200)
    site.assert_exact()
    assert len(pools) > WORKER_KILLS
    alive = {pid for process in site.processes if process.code is None for pid in pool_of(process)}
    site.until(lambda: not [pid for pid in pools - alive if Path(f"/proc/{pid}").exists()])
