"""JSON forms: strict where a value must come back, safe where it is only shown."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pydantic
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rowsweep.jobs.values.json_form import NoJsonForm, json_form, json_text, safe_json
from rowsweep.queue.memory import jsonb
from rowsweep.telemetry.text import is_encodable, safe_text


class Rude:
    def __repr__(self) -> str:
        raise SystemExit

    def __str__(self) -> str:
        raise ValueError


class Refusing(pydantic.BaseModel):
    value: float

    @pydantic.field_serializer("value")
    def refuse(self, value: float) -> float:
        raise KeyError(value)


@dataclasses.dataclass
class Point:
    x: float


class Loose(pydantic.BaseModel):
    a: Any


class Number(enum.IntEnum):
    ONE = 1


def failing() -> Iterator[int]:
    yield 1
    raise ZeroDivisionError


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def looped() -> list[Any]:
    value: list[Any] = [1]
    value += [value, {"again": value}]
    return value


def kept(text: str) -> Any:
    """Answer the value as `jsonb` keeps it: a large float comes back as a whole number."""
    return jsonb.read(jsonb.bind(json.loads(text)))


TEXT = st.text(st.characters(exclude_categories=[]), max_size=6)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(14_000, 20_000).map(lambda bits: -(1 << bits))
    | st.floats()
    | TEXT
    | st.binary(max_size=4)
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.complex_numbers()
    | st.builds(object)
    | st.builds(Rude)
    | st.builds(Point, st.floats())
    | st.builds(Loose, a=st.none() | st.floats())
    | st.builds(Refusing, value=st.just(1.0))
    | st.sampled_from([Number.ONE, Rude, failing, math])
)
HASHABLE = TEXT | st.integers() | st.floats() | st.none() | st.builds(Rude) | st.tuples(st.integers(), TEXT)
ANYTHING = st.recursive(
    LEAVES,
    lambda part: (
        st.lists(part, max_size=4)
        | st.tuples(part, part)
        | st.dictionaries(HASHABLE, part, max_size=4)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(value=ANYTHING)
@example(value={"a\ud800": 1})
@example(value=Loose(a=math.nan))
def test_a_form_is_refused_with_a_path_or_comes_back_equal(value: Any) -> None:
    """N-012, S-043: nothing else than NoJsonForm is ever raised, and no text of a refusal needs care."""
    refused: NoJsonForm | None = None
    try:
        form = json_form(value)
    except NoJsonForm as error:
        refused = error
    if refused is not None:
        assert refused.path.startswith("$")
        assert is_encodable(str(refused))
        return
    again = json.loads(json_text(form))
    assert again == form
    assert json_form(again) == again
    assert safe_json(value) == form


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(values=st.lists(ANYTHING, min_size=10, max_size=30))
def test_postgres_keeps_the_safe_form_of_whatever_comes(connection: psycopg.Connection, values: list[Any]) -> None:
    """N-012: what is only shown is replaced, never raised, and `jsonb` takes and answers it."""
    texts = [json_text(safe_json(value)) for value in values]
    rows = connection.execute("select t::jsonb::text from unnest(%s::text[]) t", [texts]).fetchall()
    assert [json.loads(row[0]) for row in rows] == [kept(text) for text in texts]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(values=st.lists(ANYTHING, min_size=10, max_size=30))
def test_postgres_keeps_every_form_that_is_not_refused(connection: psycopg.Connection, values: list[Any]) -> None:
    """N-012, S-044: what enqueue lets through never fails in the insert."""
    texts = []
    for value in values:
        try:
            texts.append(json_text(json_form(value)))
        except NoJsonForm:
            continue
    rows = connection.execute("select t::jsonb::text from unnest(%s::text[]) t", [texts]).fetchall()
    assert [json.loads(row[0]) for row in rows] == [kept(text) for text in texts]


def test_postgres_keeps_the_safe_form_of_the_worst(connection: psycopg.Connection) -> None:
    """N-012: what a random value hardly ever is."""
    worst = [
        looped(),
        nested(250),
        nested(5_000),
        failing(),
        {"a\x00\ud800": "\x00"},
        10**6000,
        10**4000,
        1e308,
        5e-324,
    ]
    texts = [json_text(safe_json(value)) for value in [*worst, {1: worst, "b": {Rude(): [Rude]}}]]
    rows = connection.execute("select t::jsonb::text from unnest(%s::text[]) t", [texts]).fetchall()
    assert [json.loads(row[0]) for row in rows] == [kept(text) for text in texts]


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        (float("nan"), "$", "nan is not JSON"),
        ({"a": [1, float("inf")]}, "$.a[1]", "inf is not JSON"),
        (Point(float("nan")), "$.x", "nan is not JSON"),
        ([None, Loose(a={"b": [float("-inf")]})], "$[1].a.b[0]", "-inf is not JSON"),
        (["\x00"], "$[0]", "NUL"),
        ({"a": "\udfff"}, "$.a", "lone surrogate"),
        ({"a\ud800": 1}, "$.a\\ud800 (key)", "lone surrogate"),
        ({"a": {"b": object()}}, "$.a.b", "object has no JSON form"),
        ((1, b"\xff"), "$[1]", "bytes has no JSON form"),
        ({"a": 10**5000}, "$.a", "16,610 bits"),
        ([Refusing(value=1)], "$[0]", "Refusing has no JSON form"),
        (failing(), "$", "generator has no JSON form"),
    ],
)
def test_a_refusal_names_the_path(value: Any, path: str, why: str) -> None:
    """N-012."""
    with pytest.raises(NoJsonForm, match=why) as refused:
        json_form(value)
    assert refused.value.path == path


def test_containers_that_hold_themselves_or_are_too_deep_are_refused() -> None:
    """N-012: not with a RecursionError, and not in exponential time."""
    for value in (looped(), nested(300), nested(100_000)):
        with pytest.raises(NoJsonForm, match="nested too deeply, or contains itself"):
            json_form(value)
        json_text(safe_json(value))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ([float("nan"), float("inf"), float("-inf")], ["NaN", "Infinity", "-Infinity"]),
        ({"a\x00": "b\x00c", "d": "\ud800"}, {"a\\x00": "b\\x00c", "d": "\\ud800"}),
        ({"ok": [1, 2.5], "bad": Rude()}, {"ok": [1, 2.5], "bad": "<Rude whose repr raises>"}),
        ({"a\ud800": Decimal("1.10")}, {"a\\ud800": "1.10"}),
        ((UUID(int=1), datetime(2024, 1, 1, tzinfo=UTC)), [str(UUID(int=1)), "2024-01-01T00:00:00Z"]),
        (Number.ONE, 1),
        ([10**5000], ["(a whole number of 16,610 bits)"]),
    ],
)
def test_what_cannot_be_kept_is_replaced_where_it_stands(value: Any, form: Any) -> None:
    """N-012: one bad part costs only itself."""
    assert safe_json(value) == form


@given(text=TEXT, limit=st.integers(1, 8))
def test_safe_text_can_be_encoded_and_keeps_its_limit(text: str, limit: int) -> None:
    """N-012."""
    made = safe_text(text)
    assert is_encodable(made)
    assert "\x00" not in made
    assert len(safe_text(text, limit)) <= limit
    if is_encodable(text) and "\x00" not in text:
        assert made == text
