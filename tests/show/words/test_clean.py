"""Foreign text, made safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rowsweep.show.words.clean import as_html, clean, clean_lines, cut, pad


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order-totals", "order-totals"),
        ("Größe 表", "Größe 表"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("left\u202eright", "left\\u202eright"),
        ("nul\x00", "nul\\x00"),
        ("\ud800", "\\ud800"),
        ("a\u00a0b", "a b"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str) -> None:
    """N-104."""
    assert clean(text) == shown


@given(st.text(alphabet=st.characters(codec=None)))
def test_no_text_has_anything_unprintable_left(text: str) -> None:
    """N-104."""
    assert clean(text).isprintable()


def test_lines_stay_apart_and_each_is_clean() -> None:
    assert clean_lines("a\x07\nb") == ["a\\x07", "b"]


def test_markup_is_spelled_out_in_html() -> None:
    """N-104."""
    assert as_html("<script>'\"&\x1b") == "&lt;script&gt;&#x27;&quot;&amp;\\x1b"


@given(st.text().map(clean), st.integers(min_value=1, max_value=30))
def test_cut_text_fits_and_only_what_is_cut_says_so(text: str, width: int) -> None:
    shorter = cut(text, width)
    assert cell_len(shorter) <= width
    assert shorter == text or shorter.endswith("…")


def test_wide_characters_are_padded_by_their_cells() -> None:
    assert pad("表", 4) == "表  "
    assert pad("7", 3, right=True) == "  7"
