"""The frame that a preview answers, told from others by its class so that it can be shown side by side."""

from __future__ import annotations

import polars as pl


class PreviewFrame(pl.DataFrame):
    """Rows before and after: beside each column that the sweep changed, `<column>_after`.

    It is a polars frame like any other; what is selected from it is a plain one.
    """
