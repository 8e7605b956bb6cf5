"""Keep passwords out of everything that is shown: DSNs as they stand and DSNs inside any text."""

from __future__ import annotations

import logging
import re
from urllib.parse import unquote

HIDDEN = "***"
_SECRET_NAMES = (
    "password",
    "sslpassword",
    "passwd",
    "pwd",
    "pgpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
)
_QUOTED_OR_BARE = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?:\\.|\S)+"""
_USERINFO = re.compile(r"(?P<head>\b[a-z][a-z0-9+.\-]{0,20}://[^\s:/?#@'\"]*:)[^\s/?#'\"]*@", re.IGNORECASE)
# A password with an unescaped slash is no valid URL, but the mistake must not print it. What starts as a port is none.
_SLASHED_USERINFO = re.compile(r"(?P<head>\bpostgres(?:ql)?://[^\s:/?#@'\"]*:)(?!\d*[/?#,])[^\s@'\"]*@", re.IGNORECASE)
_QUERY_PAIR = re.compile(r"(?P<head>[?&](?P<name>[^\s=&?#'\"]+)=)[^\s&#'\"]*")
_ASSIGNMENT = re.compile(
    rf"(?P<head>(?<![a-z])(?:{'|'.join(_SECRET_NAMES)})['\"]?\s*[=:]\s*)(?!{re.escape(HIDDEN)})(?:{_QUOTED_OR_BARE})",
    re.IGNORECASE,
)
_URL = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)


def redact_dsn(dsn: str) -> str:
    """Answer a DSN (URL or `key=value` form) with its passwords replaced, fit for a log, an error or a screen."""
    if _URL.match(dsn.strip()):
        # Known to be one URL: a password with blanks or quotes ends at the last @ before the path.
        head, found, rest = dsn.strip().partition("://")
        cut = _end_of_authority(rest)
        userinfo, _, host = rest[:cut].rpartition("@")
        user, colon, _ = userinfo.partition(":")
        if colon:
            rest = f"{user}:{HIDDEN}@{host}{rest[cut:]}"
        return redact_text(f"{head}{found}{rest}")
    return redact_text(dsn)


def redact_text(text: str) -> str:
    """Answer text with the password of every DSN in it replaced; anything else stays as it is."""
    if "=" not in text and ":" not in text:
        return text
    for pattern in (_USERINFO, _SLASHED_USERINFO):
        text = pattern.sub(rf"\g<head>{HIDDEN}@", text)
    text = _QUERY_PAIR.sub(_redact_pair, text)
    return _ASSIGNMENT.sub(rf"\g<head>{HIDDEN}", text)


class RedactingFormatter(logging.Formatter):
    """Format as `logging.Formatter` does, with passwords replaced in the message and in the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line without passwords."""
        return redact_text(super().format(record))


def _redact_pair(match: re.Match[str]) -> str:
    is_secret = unquote(match["name"]).lower() in _SECRET_NAMES
    return f"{match['head']}{HIDDEN}" if is_secret else match[0]


def _end_of_authority(rest: str) -> int:
    """Find where `user:password@host:port` ends; unescaped slashes before an @ belong to the password."""
    end = _first_of("/?#", rest, 0)
    before, path = rest[:end], rest[end : _first_of("?#", rest, end)]
    is_host = "@" in before or ":" not in before or before.rpartition(":")[2].isdigit()
    if ("@" in path and "@" not in before) or (not is_host and "@" in rest):
        return _first_of("/?#", rest, rest.rindex("@"))
    return end


def _first_of(characters: str, text: str, start: int) -> int:
    places = [at for character in characters if (at := text.find(character, start)) >= 0]
    return min(places, default=len(text))
