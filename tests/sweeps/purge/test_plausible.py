"""A purge that would remove an implausible amount is refused before its first delete."""

from __future__ import annotations

from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import ImplausiblePurge, RowsweepError, SweepFailed
from rowsweep.sweeps.purge.plausible import refuse_implausible
from tests.sweeps.field import Field
from tests.sweeps.purge.events import OLD, declare, left, make_events, old_events
from tests.sweeps.purge.test_passes import Noted, code_of


def test_more_than_a_fifth_of_a_table_is_refused(field: Field) -> None:
    """D-8: before the first delete of any target; the refusal says what to name."""
    make_events(field, 21, 79)
    make_events(field, 1, 99, table="calm")
    noted = Noted()
    run = declare(noted, old_events("calm"), old_events(), confirm=None).launch()
    assert code_of(field, run) == "X_PURGE_IMPLAUSIBLE"
    row = field.row(run)
    assert "21 of the 100 rows" in (row.last_error or "")
    assert "confirm=0.21" in (row.last_error or "")
    assert (left(field), left(field, "calm"), noted.asked) == (100, 100, [])
    assert field.job(run).state == "dead", "no second attempt would find anything else"


def test_every_target_that_is_too_much_is_named_with_one_share_that_lets_all_through(field: Field) -> None:
    """D-8: or each refusal would only lead to the next."""
    make_events(field, 30, 70)
    make_events(field, 60, 40, table="visits")
    make_events(field, 1, 99, table="calm")
    purge = declare(old_events(), old_events("visits"), old_events("calm"), confirm=None)
    run = purge.launch()
    assert code_of(field, run) == "X_PURGE_IMPLAUSIBLE"
    said = field.row(run).last_error or ""
    assert "30 of the 100 rows of" in said
    assert "60 of the 100 rows of" in said
    assert ".calm" not in said
    assert "more than 20% of each; nothing was deleted" in said
    assert "confirm=0.6" in said
    assert field.finish(purge.launch(confirm=0.6))["total"] == 91


def test_a_fifth_is_plausible(field: Field) -> None:
    """D-8."""
    make_events(field, 20, 80)
    assert field.sweep(declare(confirm=None))["total"] == 20


@pytest.mark.parametrize("where", ["declaration", "launch"])
def test_a_confirmed_share_goes_and_a_greater_one_does_not(field: Field, where: str) -> None:
    """D-8: `confirm` names the share, in the declaration or for one run."""
    make_events(field, 50, 50)

    def run(confirm: float) -> rs.Run:
        if where == "declaration":
            return declare(confirm=confirm).launch()
        return declare(confirm=None).launch(confirm=confirm)

    assert code_of(field, run(0.49)) == "X_PURGE_IMPLAUSIBLE"
    assert left(field) == 100
    assert field.finish(run(0.5))["total"] == 50


def test_a_confirmed_share_does_not_last_beyond_its_run(field: Field) -> None:
    """D-8."""
    make_events(field, 50, 50)
    purge = declare(confirm=None)
    field.finish(purge.launch(confirm=0.5))
    field.sql(f"insert into events (created_at) select {OLD} from generate_series(1, 50)")
    assert code_of(field, purge.launch()) == "X_PURGE_IMPLAUSIBLE"


@pytest.mark.parametrize("confirm", [-0.1, 1.1, float("nan"), "half"])
def test_a_share_that_is_none_is_refused(field: Field, confirm: Any) -> None:
    """S-014."""
    make_events(field, 1, 1)
    for declaration in (lambda: declare(confirm=confirm), lambda: declare().launch(confirm=confirm)):
        with pytest.raises(RowsweepError) as caught:
            declaration()
        assert caught.value.code == "X_OPTION_INVALID"


def test_ten_times_the_median_pass_is_refused(field: Field) -> None:
    """D-8: from three passes that removed anything; passes that found nothing count for none."""
    make_events(field, 0, 10_000)
    purge = declare(confirm=None)

    def pass_over(rows: int) -> rs.Run:
        field.sql(f"insert into events (created_at) select {OLD} from generate_series(1, %s)", [rows])
        return purge.launch()

    assert field.finish(pass_over(150))["total"] == 150, "there is no median yet"
    for rows in (10, 0, 12, 0):
        field.finish(pass_over(rows))
    assert field.finish(pass_over(120))["total"] == 120, "ten times the median of 150, 10 and 12"
    run = pass_over(700)
    assert code_of(field, run) == "X_PURGE_IMPLAUSIBLE"
    assert "usually removes 66 rows" in (field.row(run).last_error or "")
    assert left(field) == 10_700
    assert field.finish(purge.launch(confirm=0.07))["total"] == 700


def test_a_table_that_is_gone_or_empty_has_no_share(field: Field) -> None:
    """D-8: nothing is divided by nothing."""
    make_events(field, 0, 0)
    assert field.sweep(declare(confirm=None))["total"] == 0
    refuse_implausible("p", {}, confirm=None, most_rows=1, ledger=None)


def test_what_a_pass_may_remove_at_all_is_what_is_compared(field: Field) -> None:
    """D-8: with its budget no pass removes more than that; the share of the table counts in full."""
    make_events(field, 60, 10_000)
    purge = declare(confirm=None, budget=rs.Budget(rows=5), batch_rows=5, adapt=False)
    field.finish(purge.launch())
    for _ in range(5):
        field.queue_sql("update {x_jobs} set run_at = now() where state = 'delayed'")
        assert field.tick().outcome == "completed"
    assert left(field) == 10_060 - 30


def test_the_refusal_survives_a_pickle() -> None:
    """S-013."""
    import pickle

    error = ImplausiblePurge("too much", fix="confirm=0.5", meta={"share": 0.5})
    assert pickle.loads(pickle.dumps(error)).meta == {"share": 0.5}
    assert issubclass(SweepFailed, RowsweepError)
