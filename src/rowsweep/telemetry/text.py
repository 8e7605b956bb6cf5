"""Text of what was raised, fit for a row, a log and a screen: rendered whatever it is, storable, without passwords."""

from __future__ import annotations

from typing import Final

from rowsweep.telemetry.redact import redact_text

MAX_TEXT: Final = 8_000
_READ: Final = 4 * MAX_TEXT


def error_text(error: BaseException, limit: int = MAX_TEXT) -> str:
    """Answer `Class: message` on as many lines as the message has, also where `str()` of the error raises."""
    name = type(error).__name__
    try:
        message = f"{error!s:.{_READ}}"
    except BaseException as raised:  # noqa: BLE001 - a __str__ is application code and may raise anything
        return f"{name} (its text raises {type(raised).__name__})"
    return storable_text(f"{name}: {message}" if message else name, limit)


def storable_text(text: str, limit: int = MAX_TEXT) -> str:
    """Answer text that Postgres can keep, without the passwords of DSNs in it, cut at `limit` characters."""
    return safe_text(redact_text(text[:_READ]), limit)


def safe_text(text: str, limit: int | None = None) -> str:
    r"""Replace NUL and lone surrogates by their escape text (`\x00`, `\ud800`), cut at `limit` characters."""
    made = text.replace("\x00", "\\x00")
    if not is_encodable(made):
        made = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in made)
    return made if limit is None or len(made) <= limit else made[: max(limit - 1, 0)] + "…"


def is_encodable(text: str) -> bool:
    """Say whether the text has a UTF-8 form: a lone surrogate has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_storable(text: str) -> bool:
    """Say whether Postgres can keep the text as it is."""
    return "\x00" not in text and is_encodable(text)
