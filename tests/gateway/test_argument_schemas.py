"""Arguments checked against the schema of their command."""

import time
from typing import Any

import pytest

from schemas.catalog import Catalog, ToolCommand, ToolOffer
from tests.gateway.parts import CATALOG, a_request, asked_for, offering

OFFERS = offering(CATALOG)


@pytest.mark.parametrize(
    ("payload", "flaw"),
    [({"url": "x"}, None), ({"url": "x", "more": 1}, None), ({}, "url"), ({"url": 5}, "url: 5 is not of type")],
)
def test_a_flaw_says_where_it_is_and_what_is_wrong(payload: dict[str, Any], flaw: str | None) -> None:
    found = OFFERS.flaw(asked_for(a_request(payload=payload)))
    assert (found is None) if flaw is None else (found is not None and flaw in found)


@pytest.mark.parametrize("request_", [a_request("save", {"any": 1}), a_request("unheard-of"), a_request(tool="other")])
def test_without_a_schema_nothing_is_wrong(request_: Any) -> None:
    assert OFFERS.flaw(asked_for(request_)) is None


def test_what_is_told_of_large_arguments_is_short() -> None:
    found = OFFERS.flaw(asked_for(a_request(payload={"url": ["x" * 100_000]})))
    assert found is not None
    assert len(found) < 1000


def test_a_pattern_that_explodes_elsewhere_is_matched_at_once() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    offer = ToolOffer(name="t", route="t", commands=(ToolCommand(name="c", tier="read", input_schema=schema),))
    check = offering(Catalog(revision="1", tools=(offer,)))
    began = time.monotonic()
    assert check.flaw(asked_for(a_request("c", {"a": "a" * 5000 + "!"}, tool="t"), "t")) is not None
    assert time.monotonic() - began < 1
