"""A tool that needs something before it can answer says so in either form, and no stranger can say it in its place."""

from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome
from ductile_gateway.plugins.response import outcome_of
from schemas.catalog import Catalog
from schemas.continuation import Retrieve, read
from schemas.events import ToolResult
from tests.gateway.ingress_house import RESULT, House, an_event
from tests.gateway.parts import CATALOG, FETCH, RUN, FakeRunner, World, a_request, asked_for, result_in

ASKS: dict[str, Any] = {"action": "retrieve", "query": "what may be relaxed?", "reason": "unsat"}
RETRIEVE = Retrieve(action="retrieve", query="what may be relaxed?", reason="unsat")
HEAD = "## Plugin Result\nStatus: continuation\nPlugin: jina-reader\n"
FORM = f"{HEAD}\n## Continuation Request\nAction: retrieve\nQuery: what may be relaxed?\nReason: unsat\n"
MALFORMED = FORM.replace("Query: what", "Quest: what")
SUCCESS = "## Plugin Result\nStatus: success\nPlugin: jina-reader\nConfidence: low\n\nx = 3\n"
ERROR = "## Plugin Result\nStatus: error\nPlugin: jina-reader\n\nno such variable\n"


def written(text: str, **status: Any) -> ToolOutcome:
    return ToolOutcome("ok", text=text, **status)


async def result_of(outcome: ToolOutcome, catalog: Catalog = CATALOG, command: str = "handle") -> ToolResult:
    world = World(runner=FakeRunner(outcome))
    await world.relay(catalog).take(asked_for(a_request(command)))
    return result_in(world.bus.messages[0][2])


def test_a_response_whose_request_is_flawed_is_bad_output_that_names_the_field_and_is_not_tried_again() -> None:
    tasks: list[Any] = [{"action": "retrieve", "query": "a"}, {"action": "plugin", "input": "b"}]
    outcome = outcome_of({"status": "ok", "result": "x", "continuation": {"action": "multi-step", "tasks": tasks}})
    assert (outcome.error_class, outcome.retryable) == ("bad_output", False)
    assert "tasks.1.plugin is missing" in str(outcome.message)


async def test_what_a_tool_needs_is_told_in_the_json_form_whichever_it_was_said_in() -> None:
    for outcome in (ToolOutcome("continuation", text="unsat", continuation=RETRIEVE), written(FORM)):
        result = await result_of(outcome)
        assert (result.status, result.error) == ("continuation", None)
        assert result.result is not None
        assert result.result.model_dump(exclude_none=True) == {"summary": "unsat", "continuation": ASKS}
        assert read(result.result) == RETRIEVE


async def test_of_a_write_whose_answer_cannot_be_read_nobody_knows_whether_it_has_done_its_work() -> None:
    result = await result_of(written(MALFORMED), command="save")
    assert result.error is not None
    assert (result.error.error_class, "line 7" in result.error.message) == ("in_doubt", True)


@pytest.mark.parametrize("declared", [{"output": "untrusted"}, {"continues": False}])
async def test_a_text_that_strangers_may_have_written_is_never_read_as_the_form(declared: dict[str, Any]) -> None:
    catalog = Catalog(tools=(FETCH.model_copy(update=declared),))
    for text in (FORM, SUCCESS, ERROR, MALFORMED):
        result = await result_of(written(text), catalog)
        assert (result.status, result.result and result.result.model_dump()["summary"]) == ("ok", text)
    own_word = await result_of(ToolOutcome("continuation", continuation=RETRIEVE), catalog)
    assert own_word.status == "continuation"


BROUGHT = {"summary": "unsat", "continuation": ASKS}


@pytest.mark.parametrize(
    ("told", "comes"),
    [
        ({"result": {"continuation": ASKS}}, ("continuation", BROUGHT)),
        ({"result": {"summary": FORM.replace("jina-reader", "fetch")}}, ("continuation", BROUGHT)),
        ({"status": "continuation", "result": {"continuation": ASKS}}, ("continuation", BROUGHT)),
        ({"status": "continuation", "result": {"summary": FORM}}, ("continuation", BROUGHT)),
        ({"result": {"continuation": ASKS}, "untrusted": True}, ("ok", {"continuation": ASKS})),
        ({"result": {"summary": FORM}, "untrusted": True}, ("ok", {"summary": FORM})),
        (
            {"result": {"summary": SUCCESS.replace("jina-reader", "fetch")}},
            ("ok", {"summary": "x = 3", "output": {"confidence": "low"}}),
        ),
    ],
)
async def test_a_relayed_result_says_it_in_either_form_too(told: Any, comes: Any) -> None:
    house = House(offers=[FETCH])
    assert (await house.relay(an_event(payload=RESULT | told))).status_code == 202
    (event,) = house.events()
    assert (event["payload"]["status"], event["payload"]["result"]) == comes


@pytest.mark.parametrize(
    "offers",
    [(), [FETCH.model_copy(update={"output": "untrusted"})], [FETCH.model_copy(update={"continues": False})]],
    ids=["unknown", "untrusted", "never"],
)
@pytest.mark.parametrize("page", [FORM, SUCCESS, ERROR, MALFORMED])
async def test_a_page_that_a_pipeline_hands_on_asks_for_nothing_in_the_name_of_its_tool(offers: Any, page: str) -> None:
    house = House(offers=offers)
    brought = {"result": page.replace("jina-reader", "fetch"), "continuation": ASKS}
    baggage = {"run_id": RUN, "step": 1, "tool": "fetch"}
    await house.relay(an_event("report.done", brought, baggage=baggage))
    (event,) = house.events()
    assert (event["payload"]["status"], event["payload"]["result"]) == ("ok", brought)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"status": "continuation", "result": {"summary": "more, please"}}, "neither 'continuation' nor the markdown"),
        ({"status": "continuation", "result": None}, "neither 'continuation' nor the markdown"),
        ({"result": {"continuation": {"action": "retrieve"}}}, "query is missing"),
        ({"result": {"summary": FORM}}, "Plugin is jina-reader, and the plugin is fetch"),
    ],
)
async def test_a_relayed_result_whose_request_cannot_be_read_answers_its_step_with_why(told: Any, why: str) -> None:
    house = House(offers=[FETCH])
    assert (await house.relay(an_event(payload=RESULT | told))).status_code == 202
    (event,) = house.events()
    assert (event["payload"]["status"], why in event["payload"]["error"]["message"]) == ("error", True)
