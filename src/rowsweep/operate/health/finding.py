"""One thing that was looked at, and all of them together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from datetime import datetime

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: `says` how it is, `fix` what to do; a fix is empty where all is well."""

    name: str
    level: Level
    says: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Everything that was looked at, in a fixed order; `looked_at` is this machine's clock."""

    place: str
    looked_at: datetime
    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Say whether there is nothing to do."""
        return all(finding.level == "ok" for finding in self.findings)

    @property
    def troubles(self) -> tuple[Finding, ...]:
        """Answer what is not well, what fails first."""
        return tuple(finding for level in ("fail", "warn") for finding in self.findings if finding.level == level)

    def as_json(self) -> dict[str, Any]:
        """Answer it as plain JSON."""
        return {
            "place": self.place,
            "looked_at": self.looked_at.isoformat(),
            "is_well": self.is_well,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def __repr__(self) -> str:
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = [f"{finding.level:<4}  {finding.name:<{width}}  {finding.says}" for finding in self.findings]
        return "\n".join(lines)


def well(name: str, says: str) -> Finding:
    """Answer that there is nothing to do."""
    return Finding(name=name, level="ok", says=says)


def warn(name: str, says: str, fix: str) -> Finding:
    """Answer what should be looked after."""
    return Finding(name=name, level="warn", says=says, fix=fix)


def fail(name: str, says: str, fix: str) -> Finding:
    """Answer what keeps work from being done."""
    return Finding(name=name, level="fail", says=says, fix=fix)


def ago(seconds: float) -> str:
    """Answer a length of time in its largest unit that shows two figures or one."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def some(names: list[str], most: int = 3) -> str:
    """Answer the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
