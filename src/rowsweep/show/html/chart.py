"""Draw how fast a run went as a small SVG, and say the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rowsweep.show.words import values

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot

_WIDTH: Final = 600
_HEIGHT: Final = 60
_MOST_POINTS: Final = 80
_SHORTEST_SPAN: Final = 0.5
"""Seconds: over less than that a single batch looks like a peak."""
_HEADROOM: Final = 0.92


def rates(snapshot: Snapshot) -> list[tuple[float, float]]:
    """Answer `(active seconds, rows a second until then)` along the run, in at most eighty spans."""
    ends = [(0.0, 0), *snapshot.samples]
    if snapshot.active_seconds > ends[-1][0] and snapshot.rows > ends[-1][1]:
        ends.append((snapshot.active_seconds, snapshot.rows))
    apart = max(ends[-1][0] / _MOST_POINTS, _SHORTEST_SPAN)
    kept = ends[:1]
    for end in ends[1:]:
        if end[0] - kept[-1][0] >= apart:
            kept.append(end)
    return [(after[0], max(after[1] - before[1], 0) / (after[0] - before[0])) for before, after in pairwise(kept)]


def chart(snapshot: Snapshot) -> str:
    """Answer the chart, which a screen reader reads as a sentence; the same room empty before there are two spans."""
    points = rates(snapshot)
    if len(points) < 2:
        return f'<svg class="rs-chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true"></svg>'
    line = _line(points)
    return (
        f'<svg class="rs-chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{_words(points)}"><path class="rs-area" d="{line}L{_WIDTH},{_HEIGHT}L0,{_HEIGHT}Z"></path>'
        f'<path class="rs-line" d="{line}"></path></svg>'
    )


def peak_words(snapshot: Snapshot) -> str:
    """Answer what the chart's top stands for."""
    points = rates(snapshot)
    if len(points) < 2:
        return "rows a second along the run"
    return f"rows a second along the run, {values.rate(max(rate for _, rate in points))} at most"


def _words(points: Sequence[tuple[float, float]]) -> str:
    most, least = max(rate for _, rate in points), min(rate for _, rate in points)
    return (
        f"Rows a second along the run: {values.rate(points[-1][1])} last, "
        f"between {values.rate(least)} and {values.rate(most)}"
    )


def _line(points: Sequence[tuple[float, float]]) -> str:
    most = max(rate for _, rate in points) or 1.0
    seconds = points[-1][0] or 1.0
    heights = [f"{_HEIGHT - _HEIGHT * _HEADROOM * rate / most:.1f}" for _, rate in points]
    at = [f"{_WIDTH * when / seconds:.1f}" for when, _ in points]
    return "M" + "L".join(f"{x},{y}" for x, y in zip(["0", *at], [heights[0], *heights], strict=True))
