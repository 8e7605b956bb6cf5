"""For tests of an application: run jobs inline, cut sweeps off as a crash would, move the clock, see what is queued."""

from __future__ import annotations

from rowsweep.testing.clock import FakeClock
from rowsweep.testing.enqueued import assert_enqueued
from rowsweep.testing.inline import drain, run_inline
from rowsweep.testing.interrupt import Interruption, interrupt_after

__all__ = ["FakeClock", "Interruption", "assert_enqueued", "drain", "interrupt_after", "run_inline"]
