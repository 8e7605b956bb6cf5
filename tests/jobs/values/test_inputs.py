"""Inputs: validated at enqueue and at the run, kept in their JSON form."""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pydantic
import pytest
from typing_extensions import TypedDict

from rowsweep.errors import InvalidInput
from rowsweep.jobs.values.inputs import MAX_BYTES, InputType
from rowsweep.jobs.values.json_form import json_text


class Colour(enum.Enum):
    RED = "red"


class Order(pydantic.BaseModel):
    id: UUID
    placed_at: datetime
    total: Decimal
    colour: Colour = Colour.RED
    lines: list[tuple[str, int]] = []


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    shop: str = pydantic.Field(alias="shopName")
    until: date

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"{self.shop} until {self.until}"


@dataclasses.dataclass
class Page:
    number: int
    seen: set[str]
    wait: timedelta = timedelta(seconds=90)


class Row(TypedDict):
    key: int
    at: time


class Loose(pydantic.BaseModel):
    inner: Any
    empty: None = None


AN_ORDER = Order(
    id=UUID(int=7),
    placed_at=datetime(2024, 3, 10, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-5))),
    total=Decimal("12345678901234567890.123456789012345678901234567890"),
    lines=[("a", 1)],
)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 2**60),
        (float, 0.1),
        (str, "größe 👩‍🚀"),
        (bool, False),
        (Order, AN_ORDER),
        (list[Order], [AN_ORDER, AN_ORDER]),
        (Aliased, Aliased(shopName="acme", until=date(2025, 1, 1))),
        (Page, Page(3, {"x"})),
        (Row, {"key": 1, "at": time(23, 59, 59, 999999)}),
        (datetime, datetime(2024, 1, 1, tzinfo=UTC)),
        (datetime, datetime(2024, 1, 1)),  # noqa: DTZ001 - a naive instant is a value as well
        (UUID, UUID(int=1)),
        (Decimal, Decimal("0.10")),
        (dict[int, Colour], {5: Colour.RED}),
        (int | None, None),
        (tuple[int, str] | Row, (1, "a")),
        (Any, {"any": [1, None, True]}),
        (bytes, b"text"),
        (pydantic.Json[dict[str, int]], '{"a": 1}'),
    ],
)
def test_a_value_comes_back_from_its_stored_form(declared: Any, value: Any) -> None:
    """S-041, S-043: models, dataclasses, TypedDicts, instants, UUIDs and decimals, through real JSON text."""
    kind = InputType(declared, job="a")
    parsed, form = kind.dump(value)
    assert kind.parse(json.loads(json_text(form))) == parsed
    if not isinstance(value, str):
        assert parsed == value


def test_what_is_stored_is_plain_json() -> None:
    """S-043, S-044: the form is a row's, not the object; no digit of a decimal is lost."""
    _, form = InputType(Order, job="a").dump(AN_ORDER)
    assert form == {
        "id": str(UUID(int=7)),
        "placed_at": "2024-03-10T02:30:00.123456-05:00",
        "total": "12345678901234567890.123456789012345678901234567890",
        "colour": "red",
        "lines": [["a", 1]],
    }


def test_the_parsed_value_is_what_tenant_and_key_are_asked_with() -> None:
    """S-041: enqueue takes whatever the type takes, and goes on with the parsed value."""
    parsed, form = InputType(Order, job="a").dump({"id": str(UUID(int=7)), "placed_at": 0, "total": "1"})
    assert isinstance(parsed, Order)
    assert form["placed_at"] == "1970-01-01T00:00:00Z"


def test_no_declared_input_takes_none_and_nothing_else() -> None:
    """S-043: a missing input is JSON null."""
    kind = InputType(None, job="a")
    assert kind.dump(None) == (None, None)
    assert kind.parse({"left": "over"}) is None
    with pytest.raises(InvalidInput, match="takes no input; got int"):
        kind.dump(5)


@pytest.mark.parametrize(
    ("declared", "value", "path"),
    [
        (int, "x", "$"),
        (Order, {"id": "7", "placed_at": 0, "total": 1}, "$.id"),
        (list[Row], [{"key": 1, "at": "10:00"}, {"key": "x", "at": "10:00"}], "$[1].key"),
        (dict[str, float], {"a": float("nan")}, "$.a"),
        (dict[str, Any], {"a": [1, {"b": float("-inf")}]}, "$.a[1].b"),
        (Loose, {"inner": {"b": float("inf")}}, "$.inner.b"),
        (list[str], ["ok", "nul\x00"], "$[1]"),
        (list[str], ["ok", "\ud800"], "$[1]"),
        (dict[str, int], {"a\x00": 1}, "$.a\\x00 (key)"),
        (Any, {"a": object()}, "$"),
        (Any, [10**5000], "$[0]"),
        (bytes, b"\xff", "$"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(declared: Any, value: Any, path: str) -> None:
    """S-041, N-012."""
    with pytest.raises(InvalidInput) as refused:
        InputType(declared, job="a").dump(value)
    assert refused.value.meta["path"] == path
    assert (refused.value.code, refused.value.retry) == ("X_JOB_INPUT_INVALID", "terminal")


def test_a_stored_input_that_no_longer_parses_is_refused_terminally() -> None:
    """S-041, S-042."""
    with pytest.raises(InvalidInput, match=r"\$\.total") as refused:
        InputType(Order, job="a").parse({"id": str(UUID(int=7)), "placed_at": 0})
    assert refused.value.retry == "terminal"


class Excluding(pydantic.BaseModel):
    name: str = pydantic.Field(exclude=True)


class Misnamed(pydantic.BaseModel):
    name: str = pydantic.Field(serialization_alias="title")


def mutated() -> Row:
    order = AN_ORDER.model_copy()
    order.id = "no uuid"  # type: ignore[assignment]
    return order  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("declared", "value"), [(Excluding, Excluding(name="a")), (Misnamed, Misnamed(name="a")), (Order, mutated())]
)
def test_a_value_whose_form_does_not_parse_back_is_refused_at_enqueue(declared: Any, value: Any) -> None:
    """S-041: its run could only fail, so it is told at once."""
    with pytest.raises(InvalidInput, match="its JSON form does not parse"):
        InputType(declared, job="a").dump(value)


def test_a_validator_of_the_application_is_asked_both_times() -> None:
    """S-041."""
    asked: list[int] = []

    def check(value: int) -> int:
        asked.append(value)
        if value > 10:
            msg = "at most 10"
            raise ValueError(msg)
        return value

    kind = InputType(Annotated[int, pydantic.AfterValidator(check)], job="a")
    kind.dump(3)
    before = len(asked)
    kind.parse(3)
    assert len(asked) == before + 1
    with pytest.raises(InvalidInput, match="at most 10"):
        kind.dump(11)


def test_an_input_of_one_mebibyte_is_the_largest() -> None:
    """N-121: in bytes of UTF-8, saying the size and the limit."""
    kind = InputType(str, job="a")
    kind.dump("x" * (MAX_BYTES - 2))
    with pytest.raises(InvalidInput, match=r"1,048,577 bytes; the limit is 1,048,576") as refused:
        kind.dump("x" * (MAX_BYTES - 1))
    assert "reference" in refused.value.fix
    with pytest.raises(InvalidInput):
        kind.dump("é" * (MAX_BYTES // 2))
