"""What the benchmarks' figures say, and how both sides take their turns."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import ModuleType

import pytest

from benchmarks import __main__ as runner
from benchmarks.measure import Better, Figure, interleave, rate


@pytest.mark.parametrize(
    ("ours", "better", "holds"),
    [(95.0, "higher", True), (90.0, "higher", True), (89.0, "higher", False), (91.0, "lower", False)],
)
def test_a_figure_holds_on_the_right_side_of_its_bar(ours: float, better: Better, holds: bool) -> None:
    figure = Figure(name="a.b", unit="rows/s", ours=ours, reference=100.0, bar=0.9, better=better)
    said = json.loads(figure.as_json())
    assert said["holds"] is holds
    assert said["ratio"] == ours / 100


def test_both_sides_take_turns_in_going_first() -> None:
    calls: list[str] = []

    def side(name: str, values: list[float]) -> float:
        calls.append(name)
        return values.pop()

    mine, theirs = [1.0, 2.0, 9.0], [4.0, 5.0, 6.0]
    medians = interleave(lambda: side("ours", mine), lambda: side("reference", theirs), rounds=3)
    assert calls == ["ours", "reference", "reference", "ours", "ours", "reference"]
    assert (medians.ours, medians.reference) == (2.0, 5.0)


def test_a_rate_is_the_amount_by_the_second() -> None:
    assert rate(lambda: 0) == 0
    assert rate(lambda: 10) > 10


def test_the_runner_prints_the_figures_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("probe.one", "probe.two")
    measured = {n: partial(Figure, name=n, unit="rows/s", ours=1.0, reference=1.0, bar=1.0) for n in names}
    module = ModuleType("benchmarks.probe")
    module.__dict__["FIGURES"] = measured
    monkeypatch.setitem(sys.modules, "benchmarks.probe", module)
    monkeypatch.setattr("pkgutil.iter_modules", lambda _: [Found("measure"), Found("probe")])
    assert runner.main("probe.two") == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == ["probe.two"]
    assert runner.main("nothing") == 2
    assert "There are: probe." in capsys.readouterr().err


class Found:
    """A module as pkgutil finds it."""

    def __init__(self, name: str) -> None:
        self.name = name
