"""Show a queue's health: one line a thing that was looked at, and below it what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table as Grid
from rich.text import Text

from rowsweep.show.terminal import STYLES
from rowsweep.show.words.clean import clean

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from rowsweep.operate.health.finding import Finding, Health
    from rowsweep.show.words.facts import Tone

_TONES: Final[dict[str, Tone]] = {"ok": "good", "warn": "warn", "fail": "bad"}
_FIX: Final = "fix: "


def health_text(health: Health) -> str:
    """Answer the findings as plain lines, nothing cut."""
    return "\n".join([*(line for finding in health.findings for line in _lines(health, finding)), _verdict(health)])


class HealthView:
    """Draw the findings; what is long is folded, never cut, so that a fix can be read."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Grid.grid(padding=(0, 2, 0, 0))
        for finding in self._health.findings:
            says = Text(clean(finding.says), overflow="fold")
            if finding.fix:
                says.append(f"\n{_FIX}{clean(finding.fix)}", STYLES["dim"])
            grid.add_row(Text(finding.level, STYLES[_TONES[finding.level]]), Text(finding.name), says)
        yield grid
        yield Text(_verdict(self._health), "bold", overflow="fold")


def _lines(health: Health, finding: Finding) -> list[str]:
    width = max(len(other.name) for other in health.findings)
    lines = [f"{finding.level:<4}  {finding.name:<{width}}  {clean(finding.says)}"]
    return [*lines, f"{'':<{width + 8}}{_FIX}{clean(finding.fix)}"] if finding.fix else lines


def _verdict(health: Health) -> str:
    failing = sum(finding.level == "fail" for finding in health.findings)
    warned = sum(finding.level == "warn" for finding in health.findings)
    if health.is_well:
        return f"{clean(health.place)} is well."
    return f"{clean(health.place)}: {failing} failing, {warned} to look after."
