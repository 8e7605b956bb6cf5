"""Log lines for the commands: one event a line, as text or as JSON, without passwords or control characters."""

from __future__ import annotations

import copy
import json as json_text
import logging
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from rowsweep.options import format_duration, one_of
from rowsweep.telemetry.events import LOGGER_NAME
from rowsweep.telemetry.redact import RedactingFormatter, redact_text

LEVELS = ("debug", "info", "warning", "error")
_PLAIN = re.compile(r"[^\s\"'=\\]+")
_HANDLER_NAME = "rowsweep-console"


def configure_logging(*, json: bool = False, level: str = "info", stream: TextIO | None = None) -> logging.Handler:
    """Write rowsweep's log lines to `stream` (stderr unless given), from `level` up; called again, it replaces.

    For the commands: a library's user configures `logging` themselves.
    """
    one_of(level, LEVELS, option="level")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(JsonFormatter() if json else LineFormatter())
    logger = logging.getLogger(LOGGER_NAME)
    for former in [former for former in logger.handlers if former.get_name() == _HANDLER_NAME]:
        logger.removeHandler(former)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


class LineFormatter(RedactingFormatter):
    """Format a record as `12:34:56 info event key=value …`, the time in UTC; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the lines, the traceback made here: another handler's may be kept on the record, unescaped."""
        own = copy.copy(record)
        own.exc_text = None
        return super().format(own)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """Answer the line; what is not printable is escaped, so that no value can steer a terminal."""
        pairs = [f"{name}={_value_text(value)}" for name, value in _fields(record).items() if value is not None]
        at = _logged_at(record).strftime("%H:%M:%S")
        return " ".join([at, record.levelname.lower(), _printable(record.getMessage()), *pairs])

    def formatException(self, exc_info: Any) -> str:  # noqa: N802 - logging's own name
        """Answer the traceback, its control characters escaped."""
        text = super().formatException(exc_info)
        return "\n".join(_printable(line) for line in text.splitlines())


class JsonFormatter(logging.Formatter):
    """Format a record as one JSON object: `logged_at`, `level`, `event`, and the event's fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer one line of valid JSON, whatever the fields hold."""
        line: dict[str, object] = {
            "logged_at": _logged_at(record).isoformat(),
            "level": record.levelname.lower(),
            "event": redact_text(record.getMessage()),
        }
        line |= {name: _json_value(value) for name, value in _fields(record).items()}
        if record.exc_info:
            line["traceback"] = redact_text(self.formatException(record.exc_info))
        return json_text.dumps(line)


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


def _logged_at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _value_text(value: object) -> str:
    plain = _json_value(value)
    if isinstance(plain, list) and all(isinstance(item, str) and _PLAIN.fullmatch(item) for item in plain):
        text = ",".join(plain)
    elif isinstance(plain, float):
        text = f"{plain:.6g}"
    else:
        text = plain if isinstance(plain, str) else json_text.dumps(plain, ensure_ascii=False)
    is_bare = not isinstance(plain, str) or _PLAIN.fullmatch(text)
    return _printable(text if is_bare else json_text.dumps(text, ensure_ascii=False))


def _json_value(value: object) -> object:
    """Answer the value as JSON has it; what JSON has not becomes text, with passwords replaced."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Mapping):
        return {str(name): _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    return redact_text(str(value))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
