"""What is on offer may be replaced while calls are made: what was admitted goes on, what comes next meets the new."""

from ductile_gateway.tools.catalog import Offers, difference
from schemas.catalog import Catalog, ToolCommand
from tests.gateway.parts import CATALOG, FETCH, World, a_request, asked_for, offering, outcomes

NUMBER = {"type": "object", "properties": {"url": {"type": "integer"}}}
STRICTER = FETCH.model_copy(update={"commands": (ToolCommand(name="handle", tier="read", input_schema=NUMBER),)})


def catalog_of(*offers: object) -> Catalog:
    return CATALOG.model_copy(update={"revision": "sha256:2", "tools": offers})


def test_before_anything_is_on_offer_nothing_is() -> None:
    offers = Offers()
    assert offers.find("fetch") is None
    assert not offers.catalog.tools


def test_arguments_are_checked_by_the_schemas_that_belong_to_the_offer() -> None:
    offers = offering(CATALOG)
    assert offers.flaw(asked_for()) is None
    offers.replace(catalog_of(STRICTER))
    assert "integer" in str(offers.flaw(asked_for()))


async def test_a_tool_that_is_gone_is_refused_from_then_on() -> None:
    world, offers = World(), offering(CATALOG)
    relay = world.relay(offers=offers)
    await relay.take(asked_for(a_request(step=1)))
    offers.replace(catalog_of())
    await relay.take(asked_for(a_request(step=2)))
    assert outcomes(world) == ["ok", "not_allowed"]


def test_what_came_went_and_changed_is_told_apart() -> None:
    other = FETCH.model_copy(update={"name": "browse"})
    before, now = catalog_of(FETCH, other), catalog_of(STRICTER, FETCH.model_copy(update={"name": "read"}))
    assert difference(before, now) == {"new": ["read"], "gone": ["browse"], "changed": ["fetch"]}
    assert difference(before, before) == {"new": [], "gone": [], "changed": []}
