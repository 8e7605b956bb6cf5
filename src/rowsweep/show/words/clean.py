"""Make foreign text safe to show: no control sequence reaches a terminal, no markup a page."""

from __future__ import annotations

import html
from typing import Final

from rich.cells import cell_len, set_cell_size

_ELLIPSIS: Final = "…"


def clean(value: object) -> str:
    r"""Answer the text with everything unprintable spelled out (`\x1b`, `\n`), so that it stays on one line.

    Names, errors and values come from applications and tables: an escape sequence in one of them could move the
    cursor, recolour the terminal or turn the reading direction around.
    """
    text = str(value)
    return text if text.isprintable() else "".join(map(_shown, text))


def clean_lines(value: object) -> list[str]:
    """Answer the text's lines, each of them clean."""
    return [clean(line) for line in str(value).splitlines()]


def one_line(value: object) -> str:
    """Answer the text in one clean line, its own lines joined by spaces."""
    return " ".join(filter(None, (line.strip() for line in clean_lines(value))))


def cut(text: str, width: int) -> str:
    """Answer clean text in at most `width` cells, with an ellipsis where some of it is missing."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + _ELLIPSIS


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Answer the text in `width` cells at least, filled up with spaces; wide characters count as two."""
    gap = " " * max(width - cell_len(text), 0)
    return gap + text if right else text + gap


def as_html(value: object) -> str:
    """Answer the text as HTML shows it, markup spelled out."""
    return html.escape(clean(value))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace() and character not in "\t\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return " "
    return character.encode("unicode_escape").decode("ascii")
