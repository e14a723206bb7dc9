"""A tool that needs something before it can answer says so in either form, and no stranger can say it in its place."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome, failed
from ductile_gateway.calls.continuing import MAX_BYTES, in_words
from ductile_gateway.ductile.jobs import read_job, read_tree
from ductile_gateway.plugins.response import Remains, judge, outcome_of
from schemas.catalog import Catalog
from schemas.continuation import MultiStep, Retrieve, read
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


@pytest.mark.parametrize("status", ["ok", "continuation"])
def test_a_response_may_ask_beside_ok_which_is_all_that_a_ductile_knows_or_by_its_own_status(status: str) -> None:
    response: dict[str, Any] = {"status": status, "result": "not yet", "continuation": ASKS, "output": {"core": ["c1"]}}
    outcome = ToolOutcome("continuation", text="not yet", output={"core": ["c1"]}, continuation=RETRIEVE)
    remains = Remains("ended", True, True, 0, json.dumps(response).encode())
    assert judge(remains) == outcome_of(response) == outcome


def test_a_response_whose_request_is_flawed_is_bad_output_that_names_the_field_and_is_not_tried_again() -> None:
    tasks: list[Any] = [{"action": "retrieve", "query": "a"}, {"action": "plugin", "input": "b"}]
    outcome = outcome_of({"status": "ok", "result": "x", "continuation": {"action": "multi-step", "tasks": tasks}})
    assert (outcome.error_class, outcome.retryable) == ("bad_output", False)
    assert "tasks.1.plugin is missing" in str(outcome.message)


def test_a_job_of_a_ductile_asks_too_and_of_a_pipeline_the_step_that_has_the_last_word() -> None:
    response: dict[str, Any] = {"status": "ok", "result": "not yet", "continuation": ASKS}
    job: dict[str, Any] = {"plugin": "z3-solver", "status": "succeeded", "result": response, "completed_at": "1"}
    asked = ToolOutcome("continuation", text="not yet", continuation=RETRIEVE)
    assert read_job(job) == asked
    first = job | {"plugin": "other", "result": {"status": "ok", "result": "first"}, "completed_at": "0"}
    assert read_tree([job, first]) == asked


async def test_what_a_tool_needs_is_told_in_the_json_form_whichever_it_was_said_in() -> None:
    for outcome in (ToolOutcome("continuation", text="unsat", continuation=RETRIEVE), written(FORM)):
        result = await result_of(outcome)
        assert (result.status, result.error) == ("continuation", None)
        assert result.result is not None
        assert result.result.model_dump(exclude_none=True) == {"summary": "unsat", "continuation": ASKS}
        assert read(result.result) == RETRIEVE


async def test_a_status_beside_a_text_that_is_no_form_is_bad_output() -> None:
    for text in ("", "I need more", SUCCESS, ERROR, MALFORMED):
        result = await result_of(replace(written(text), status="continuation"))
        assert result.error is not None
        assert result.error.error_class == "bad_output"


async def test_the_markdown_form_may_also_say_how_it_went() -> None:
    done, refused = await result_of(written(SUCCESS)), await result_of(written(ERROR))
    assert done.result is not None
    assert done.result.model_dump(exclude_none=True) == {"summary": "x = 3", "output": {"confidence": "low"}}
    assert refused.error is not None
    assert (refused.error.error_class, refused.error.message) == ("tool_error", "no such variable")


async def test_a_form_that_cannot_be_read_is_bad_output_that_names_the_line() -> None:
    result = await result_of(written(MALFORMED))
    assert result.error is not None
    assert (result.error.error_class, result.error.retryable) == ("bad_output", False)
    assert "line 7: Quest is not one of the fields" in result.error.message


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


def test_a_form_of_another_plugin_is_refused_and_in_a_pipeline_the_step_s_own_name_will_do() -> None:
    stranger = in_words(written(FORM), plugin="z3-solver", reads=True)
    assert isinstance(stranger, ToolOutcome)
    assert stranger.message == (
        "what the plugin asks for, or how it went, cannot be read: Plugin is jina-reader, and the plugin is z3-solver"
    )
    step = in_words(written(FORM, said_by="jina-reader"), plugin="solve", reads=True)
    assert isinstance(step, ToolOutcome)
    assert step.continuation == RETRIEVE


async def test_a_continuation_is_no_larger_than_a_journal_should_keep() -> None:
    tasks: list[Any] = [{"action": "retrieve", "query": "x" * 4000}] * (MAX_BYTES // 4000 + 1)
    asks = MultiStep.model_validate({"action": "multi-step", "tasks": tasks})
    result = await result_of(ToolOutcome("continuation", continuation=asks))
    assert result.error is not None
    assert (result.error.error_class, f"more than {MAX_BYTES} bytes" in result.error.message) == ("bad_output", True)


async def test_an_error_says_nothing_else_whatever_its_text_is() -> None:
    result = await result_of(failed("tool_error", FORM, retryable=False))
    assert result.error is not None
    assert result.error.message == FORM


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


async def test_the_request_of_a_large_relayed_result_stays_whole() -> None:
    house = House()
    told = {"status": "continuation", "result": {"continuation": ASKS, "log": "x" * 20_000}}
    await house.relay(an_event(payload=RESULT | told))
    (event,) = house.events()
    assert (event["payload"]["result"]["continuation"], len(house.artifacts.kept)) == (ASKS, 1)
    assert RUN in str(house.artifacts.kept.keys())
