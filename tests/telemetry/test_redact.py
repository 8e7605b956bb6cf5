"""Passwords never appear, whatever form the DSN has and wherever it stands."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rowsweep.telemetry.redact import RedactingFormatter, redact_dsn, redact_text


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://localhost/shop", "postgresql://localhost/shop"),
        ("postgresql://ana@localhost:5432/shop", "postgresql://ana@localhost:5432/shop"),
        ("postgresql://ana:hunter2@localhost/shop", "postgresql://ana:***@localhost/shop"),
        ("postgres://ana:hunt%40er%2F2@localhost:5432/shop", "postgres://ana:***@localhost:5432/shop"),
        ("POSTGRESQL://ana:hunter2@h/s", "POSTGRESQL://ana:***@h/s"),
        ("postgresql://ana:hun@ter2@h1:5432,h2:5433/s", "postgresql://ana:***@h1:5432,h2:5433/s"),
        ("postgresql://ana:hun/ter2@h/s", "postgresql://ana:***@h/s"),
        ("postgresql://ana:hun?ter#2@h/s", "postgresql://ana:***@h/s"),
        ("postgresql://ana:1/hunter2@h/s", "postgresql://ana:***@h/s"),
        ("postgresql://ana:hun ter'2@h/s", "postgresql://ana:***@h/s"),
        ("postgresql://a@b:hunter2@h/s", "postgresql://a@b:***@h/s"),
        ("postgresql://:hunter2@h/s", "postgresql://:***@h/s"),
        ("postgresql:///s?host=/tmp&user=ana", "postgresql:///s?host=/tmp&user=ana"),
        ("postgresql://h:5432/s?application_name=a@b", "postgresql://h:5432/s?application_name=a@b"),
        ("postgresql://h/s?password=hunter2&sslmode=require", "postgresql://h/s?password=***&sslmode=require"),
        ("postgresql://h/s?user=ana&sslpassword=hunter2", "postgresql://h/s?user=ana&sslpassword=***"),
        ("postgresql://h/s?pass%77ord=hunter2", "postgresql://h/s?pass%77ord=***"),
        ("postgresql://h/s?password=hunt%20er2#x", "postgresql://h/s?password=***#x"),
        ("host=h password=hunter2 dbname=s", "host=h password=*** dbname=s"),
        ("host=h password='hun ter\\'2' dbname=s", "host=h password=*** dbname=s"),
        ("host=h password = hunter2", "host=h password = ***"),
        ("password=hun\\ ter'2,x&y dbname=s", "password=*** dbname=s"),
        ("PASSWORD=hunter2 passfile=/home/ana/.pgpass", "PASSWORD=*** passfile=/home/ana/.pgpass"),
        ("", ""),
    ],
)
def test_a_dsn_is_shown_without_its_password(dsn: str, shown: str) -> None:
    """N-109."""
    assert redact_dsn(dsn) == shown
    assert redact_dsn(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach postgresql://ana:hunter2@h/s: timeout", "cannot reach postgresql://ana:***@h/s: timeout"),
        ("dsn='postgresql://ana:hunter2@h/s', x", "dsn='postgresql://ana:***@h/s', x"),
        ("tried postgresql://ana:hun/ter2@h/s", "tried postgresql://ana:***@h/s"),
        ("GET https://ana:hunter2@example.com/x", "GET https://ana:***@example.com/x"),
        ("{'user': 'ana', 'password': 'hunter2', 'a': 1}", "{'user': 'ana', 'password': ***, 'a': 1}"),
        ('{"password":"hun\\"ter2","a":1}', '{"password":***,"a":1}'),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
        ("two postgresql://a:x@h/s postgresql://b:y@h/s", "two postgresql://a:***@h/s postgresql://b:***@h/s"),
        ("postgresql://localhost:5432/s and ana@example.com", "postgresql://localhost:5432/s and ana@example.com"),
        ("at 12:30 ratio=3:4, to ana@example.com", "at 12:30 ratio=3:4, to ana@example.com"),
        ('password authentication failed for user "ana"', 'password authentication failed for user "ana"'),
    ],
)
def test_text_loses_the_passwords_in_it_and_nothing_else(text: str, shown: str) -> None:
    """N-109, N-112."""
    assert redact_text(text) == shown
    assert redact_text(shown) == shown


PASSWORDS = st.text(min_size=6, max_size=20).filter(lambda text: "*" not in text)


@given(PASSWORDS, st.sampled_from(["before {} after", "{}", "'{}'", "error ({})"]))
def test_no_encoded_password_survives_in_any_text(password: str, around: str) -> None:
    """N-109."""
    hidden = quote(password, safe="", errors="replace")
    for dsn in (f"postgresql://ana:{hidden}@h:1/s", f"postgresql://h/s?user=ana&password={hidden}"):
        assert hidden not in redact_text(around.format(dsn))


@given(PASSWORDS)
def test_no_password_survives_in_a_dsn(password: str) -> None:
    """N-109: as libpq's key=value form has it, and raw in a URL."""
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    assert redact_dsn(f"host=h password='{escaped}' user=ana") == "host=h password=*** user=ana"
    assume(not set(password) & set("@#?/") and password == password.strip())
    assert redact_dsn(f"postgresql://ana:{password}@h/s") == "postgresql://ana:***@h/s"


def test_a_long_text_is_read_in_linear_time() -> None:
    """N-112: an error of any length must not hold up the worker that logs it."""
    for text in ("a." * 50_000 + "=:", "x://" * 25_000 + ":", "password='" * 10_000, "?a" * 50_000 + "=:"):
        assert redact_text(text)


def test_the_formatter_redacts_message_and_traceback() -> None:
    """N-109."""
    try:
        raise RuntimeError("no route to postgresql://ana:hunter2@h/s")
    except RuntimeError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "dsn %s", ("password=hunter2",), info)
    text = RedactingFormatter().format(record)
    assert "hunter2" not in text
    assert "postgresql://ana:***@h/s" in text
