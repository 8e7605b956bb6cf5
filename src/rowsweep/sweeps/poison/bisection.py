"""Halve a range that fails until the places that fail by themselves are found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Range:
    """A range of places that is open: `fails` is known of it as a whole, `owes` the failure that the left half has not.

    A range that fails while its left half succeeds fails in its right half: that one is halved without a try.
    """

    start: int
    end: int
    fails: bool = False
    owes: bool = False


class Bisection:
    """Answer which range to try next, from left to right, of `count` places that fail as a whole.

    Of n places one that fails alone costs at most 2 * log2(n) tries.
    """

    def __init__(self, count: int) -> None:
        self._open = [_Range(0, count, fails=True)] if count else []

    def next(self) -> tuple[int, int] | None:
        """Answer the next range to try, None behind the last; the same one until it is told what came of it."""
        while self._open:
            last = self._open[-1]
            if not last.fails or last.end - last.start == 1:
                return last.start, last.end
            self._open.pop()
            middle = (last.start + last.end) // 2
            self._open += [_Range(middle, last.end, owes=True), _Range(last.start, middle)]
        return None

    def succeeded(self) -> None:
        """Note that the range just tried is done."""
        self._open.pop()
        if self._open and self._open[-1].owes:
            self._open[-1].fails = True

    def failed(self) -> bool:
        """Note that the range just tried fails; answer whether it is a single place, which is then passed."""
        tried = self._open.pop()
        if self._open:
            self._open[-1].owes = False
        if tried.end - tried.start == 1:
            return True
        self._open.append(_Range(tried.start, tried.end, fails=True))
        return False
