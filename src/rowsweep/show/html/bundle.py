"""Answer the display bundle of a snapshot: what a notebook picks the richest of."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import TYPE_CHECKING

from rowsweep.show.html.run import snapshot_html
from rowsweep.show.plain import snapshot_line

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot


def bundle(snapshot: Snapshot, *, at: datetime | None = None, mark: str = "", note: str = "") -> dict[str, str]:
    """Answer the snapshot by MIME type; `text/plain` is always among them. The rest is as in `snapshot_html`.

    An error is warned about before it is raised: IPython keeps what display hooks raise to itself.
    """
    try:
        page = snapshot_html(snapshot, at=at, mark=mark, note=note)
        return {"text/plain": snapshot_line(snapshot), "text/html": page}
    except Exception as error:
        warnings.warn(f"rowsweep cannot show this sweep: {error!r}", RuntimeWarning, stacklevel=2)
        raise
