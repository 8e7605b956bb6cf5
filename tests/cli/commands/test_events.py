"""`rowsweep events` over a real database."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from tests.cli.command_line import CommandLine


def test_an_event_is_published(rowsweep: CommandLine) -> None:
    """D-40, S-179."""
    event = rowsweep("events", "publish", "paid", '{"total": 5}', "--key", "order-7", "--ttl", "1h", "--json").json
    assert (event["name"], event["key"], event["payload"]) == ("paid", "order-7", {"total": 5})
    lives = datetime.fromisoformat(event["expires_at"]) - datetime.fromisoformat(event["published_at"])
    assert lives == timedelta(hours=1)
    assert rowsweep("events", "publish", "paid").out.startswith("paid 0")


def test_a_payload_that_is_no_json_is_wrong_usage(rowsweep: CommandLine) -> None:
    """N-106."""
    answer = rowsweep("events", "publish", "paid", "{")
    assert answer.code == 2
    assert "Invalid value: it takes JSON" in " ".join(answer.err.split())
    assert "A text needs its quotes: '\"text\"'" in " ".join(answer.err.split())


@pytest.mark.parametrize(("flag", "value", "option"), [("--ttl", "5", "ttl"), ("--key", "", "key")])
def test_what_cannot_be_kept_is_refused(rowsweep: CommandLine, flag: str, value: str, option: str) -> None:
    """S-173, N-106."""
    answer = rowsweep("events", "publish", "paid", flag, value, "--json")
    refusal = json.loads(answer.err)
    assert (answer.code, refusal["code"], refusal["meta"]["option"]) == (1, "X_OPTION_INVALID", option)
