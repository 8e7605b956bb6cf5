"""The widgets of a live view, without a page to be shown on."""

from __future__ import annotations

import re

import pytest
from ipywidgets import Button, Text

from rowsweep.show.notebook.panel import RunPanel, Verb
from tests.show.snapshots import snapshot


class Hand:
    """A panel, and what was pressed on it."""

    def __init__(self, **changed: object) -> None:
        self.pressed: list[Verb] = []
        self.rates: list[str] = []
        self.panel = RunPanel(snapshot(**changed), self._press, hides="picture")

    def _press(self, verb: Verb, rate: str) -> None:
        self.pressed.append(verb)
        self.rates.append(rate)

    @property
    def buttons(self) -> dict[str, Button]:
        found = [child for child in self.panel.box.children[-1].children if isinstance(child, Button)]
        return {button.description: button for button in found}

    @property
    def text(self) -> str:
        return "".join(child.value for child in self.panel.box.children[1:-1])


def test_it_shows_the_snapshot_in_parts() -> None:
    """N-103: bar, rows, rate, ETA, chart."""
    text = Hand().text
    for part in ("order-totals", "≈ 41 %", "823,000", "96.4 k/s", "12 s", "rs-chart"):
        assert part in text


def test_the_picture_is_hidden_for_as_long_as_the_widgets_are_on_the_page() -> None:
    assert ".picture,.jp-OutputArea-child:has(.picture){display:none}" in Hand().panel.box.children[0].value


def test_only_a_part_that_is_different_is_sent() -> None:
    """A folded part stays open and a bar to and fro goes on while figures change."""
    hand = Hand()
    head, bar, figures, says, more = hand.panel.box.children[1:-1]
    sent: list[object] = []
    for part in (head, bar, figures, says, more):
        part.observe(lambda change: sent.append(change["owner"]), "value")
    hand.panel.show(snapshot(rows=824_000))
    assert sent == [figures]


def test_pausing_and_resuming_is_one_button() -> None:
    """N-103."""
    hand = Hand()
    hand.buttons["Pause"].click()
    assert hand.pressed == ["pause"]
    assert hand.buttons["Pause"].disabled
    hand.panel.show(snapshot(status="paused", words="paused"))
    assert not hand.buttons["Resume"].disabled
    hand.buttons["Resume"].click()
    assert hand.pressed == ["pause", "resume"]


def test_cancelling_asks_once_more() -> None:
    """N-103."""
    hand = Hand()
    hand.buttons["Cancel …"].click()
    assert hand.pressed == []
    assert set(hand.buttons) == {"Cancel the run", "Keep it going"}
    hand.buttons["Keep it going"].click()
    assert set(hand.buttons) == {"Pause", "Cancel …", "Set"}
    hand.buttons["Cancel …"].click()
    hand.panel.show(snapshot(rows=824_000))
    hand.buttons["Cancel the run"].click()
    assert hand.pressed == ["cancel"]
    assert hand.buttons["Cancel …"].disabled


def test_a_rate_is_set_while_the_run_is_open() -> None:
    """N-122."""
    hand = Hand()
    (text,) = [child for child in hand.panel.box.children[-1].children if isinstance(child, Text)]
    hand.buttons["Set"].click()
    assert hand.pressed == []
    text.value = " 500/s "
    hand.buttons["Set"].click()
    assert (hand.pressed, hand.rates) == (["tune"], ["500/s"])
    hand.panel.show(snapshot(options={"rate": "500/s", "tuned": {"by": "user:ann"}}))
    assert "at most 500/s" in hand.text
    hand.panel.show(snapshot(status="failed", words="failed"))
    assert text.disabled
    assert hand.buttons["Set"].disabled


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_run_that_ended_early_can_be_taken_up_again(status: str) -> None:
    """N-082."""
    hand = Hand(status=status, words=status)
    assert not hand.buttons["Resume"].disabled
    assert hand.buttons["Cancel …"].disabled


def test_a_run_that_is_done_has_no_buttons() -> None:
    hand = Hand()
    hand.panel.show(snapshot(status="done", words="done", percent=100.0))
    assert hand.buttons == {}


@pytest.mark.parametrize("words", ["pausing", "cancelling"])
def test_what_was_asked_for_is_not_asked_for_again(words: str) -> None:
    assert Hand(words=words).buttons["Pause"].disabled


def test_every_button_says_what_it_does_to_which_run() -> None:
    """Labels for screen readers."""
    assert Hand().buttons["Pause"].tooltip == "Pause behind the batch in flight: order-totals"
    assert Hand().buttons["Cancel …"].tooltip == "End the run of order-totals"


def test_what_it_says_is_escaped() -> None:
    """N-104."""
    hand = Hand(name="<b>x</b>")
    hand.panel.say("<script>alert(1)</script>")
    assert not re.search(r"<(script|b)>", hand.text)
    assert "&lt;script&gt;" in hand.text
