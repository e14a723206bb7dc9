"""Results from outside, too large for an event: stored as artifacts, and named as those of our own tools are."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from agent_service.core.events import ToolReturned
from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus
from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.results import Kept, answer_to, made_fit
from ductile_gateway.ingress.large_results import MAX_INLINE_BYTES
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.events import ARTIFACT_PATH, ToolResult
from tests.gateway.ingress_house import RESULT, House, an_event, error_of
from tests.gateway.on_nats import a_bus, results
from tests.gateway.parts import NOON, RUN, MemoryArtifacts, MemoryBus, asked_for, result_in
from tests.gateway.test_ingress_webhooks import OLD, hex_of
from tests.kit import runs

PAGE = "# A page\n" + "A line of it — ü.\n" * 1000
LINKS = [f"https://example.org/{number:04d}" for number in range(1000)]


def a_result(result: Any, **others: Any) -> dict[str, Any]:
    return an_event(payload=RESULT | {"result": result} | others)


def told(house: House) -> dict[str, Any]:
    """What the only event on the bus says of the result."""
    (event,) = house.events()
    result: dict[str, Any] = event["payload"]["result"]
    return result


def shape_of(value: Any) -> Any:
    """The names and types in a value, without what it says."""
    match value:
        case dict():
            return {name: shape_of(item) for name, item in value.items()}
        case list():
            return [shape_of(item) for item in value]
    return type(value)


async def test_a_large_result_is_an_artifact_that_the_event_names() -> None:
    house = House()
    answer = await house.relay(a_result({"summary": "Fetched it", "links": LINKS}))
    assert answer.status_code == 202
    [((run_id, name), (content, content_type))] = house.artifacts.kept.items()
    assert run_id == RUN
    assert json.loads(content) == {"links": LINKS}
    result = told(house)
    assert (result["summary"], result["artifact_path"]) == ("Fetched it", f"artifacts/{name}")
    assert ARTIFACT_PATH.fullmatch(result["artifact_path"])
    assert result["content_type"] == content_type == "application/json"
    assert result["excerpt"].startswith('{\n"links": [\n"https://example.org/0000"')
    assert result["artifacts"] == [
        {
            "path": f"artifacts/{name}",
            "content_type": "application/json",
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    ]


@pytest.mark.parametrize(
    ("declared", "suffix", "content_type"),
    [
        ({}, ".txt", "text/plain"),
        ({"content_type": "text/markdown; charset=latin-1"}, ".md", "text/markdown"),
        ({"content_type": "image/png"}, ".txt", "text/plain"),
        ({"content_type": "no type/../.."}, ".txt", "text/plain"),
    ],
)
async def test_the_long_text_of_a_resume_by_context_is_kept_as_text(
    declared: dict[str, str], suffix: str, content_type: str
) -> None:
    house = House()
    baggage = {"run_id": RUN, "step": 2, "tool": "fetch", "attempt": 3}
    payload = {"title": "A page", "content": PAGE} | declared
    assert (await house.relay(an_event("report.done", payload, baggage=baggage))).status_code == 202
    [((_, name), kept)] = house.artifacts.kept.items()
    assert kept == (PAGE.encode(), content_type)
    assert name.startswith("fetch-02-relayed-")
    assert name.endswith(suffix)
    result = told(house)
    assert result["output"] == {"title": "A page"} | declared
    assert result["excerpt"].startswith("# A page\nA line of it — ü.\n")
    assert (
        result["excerpt"]
        .partition("\n[cut: ")[2]
        .partition("; ")[2]
        .startswith(f"the whole is the artifact artifacts/{name}, ")
    )


async def test_a_result_of_words_alone_is_shown_in_part_and_kept_in_whole() -> None:
    house = House()
    await house.relay(a_result(PAGE))
    [((_, name), kept)] = house.artifacts.kept.items()
    assert kept == (PAGE.encode(), "text/plain")
    assert (
        told(house)["summary"]
        .partition("\n[cut: ")[2]
        .partition("; ")[2]
        .startswith(f"the whole is the artifact artifacts/{name}, ")
    )


async def test_what_an_event_can_carry_is_carried_as_it_is() -> None:
    house = House()
    room = MAX_INLINE_BYTES - len(json.dumps({"text": ""}, separators=(",", ":")))
    await house.relay(a_result({"text": "x" * room}))
    assert told(house) == {"text": "x" * room}
    assert house.artifacts.kept == {}
    house = House()
    await house.relay(a_result({"text": "x" * (room + 1)}))
    assert "text" not in told(house)


@pytest.mark.parametrize(
    ("outcome", "sent"),
    [
        (ToolOutcome("ok", text="Fetched it", output={"links": [*LINKS]}), {"summary": "Fetched it", "links": LINKS}),
        (ToolOutcome("ok", text=PAGE), PAGE),
        (
            ToolOutcome(
                "ok",
                text="Fetched it",
                output={"title": "A page"},
                artifacts=(ProducedArtifact("page.txt", "text/plain", PAGE.encode()),),
            ),
            {"summary": "Fetched it", "title": "A page", "content": PAGE},
        ),
    ],
)
async def test_what_is_said_of_it_has_the_shape_that_a_result_of_our_own_tools_has(
    outcome: ToolOutcome, sent: Any
) -> None:
    fit = made_fit(outcome)
    kept = [Kept(artifact.name, artifact) for artifact in fit.artifacts]
    own = result_in(answer_to(asked_for(), fit, kept, at=NOON).body).model_dump()
    house = House()
    await house.relay(a_result(sent, attempt=1))
    assert shape_of(house.bus.results[0].model_dump()) == shape_of(own)


async def test_the_agent_takes_the_artifact_for_one_of_its_run() -> None:
    waiting = runs.whole_run()[3]
    correlation = {"run_id": waiting.state.run_id, "step": 1, "tool": "search"}
    house = House()
    await house.relay(a_result({"summary": "Fetched it", "content": PAGE}, **correlation))
    (result,) = house.bus.results
    after = runs.after(waiting, ToolReturned(at=waiting.entry.at, result=result))
    [(_, name)] = house.artifacts.kept
    assert after.state.artifacts == (f"artifacts/{name}",)


async def test_it_is_stored_before_the_event_says_so() -> None:
    artifacts = MemoryArtifacts()
    seen: list[int] = []

    class Watching(MemoryBus):
        async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
            seen.append(len(artifacts.kept))
            await super().publish(subject, body, key=key, headers=headers)

    await House(bus=Watching(), artifacts=artifacts).relay(a_result(PAGE))
    assert seen == [1]


async def test_while_it_cannot_be_stored_nothing_is_said_and_its_sender_comes_again() -> None:
    house = House()
    house.artifacts.down = True
    answer = await house.relay(a_result(PAGE))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert house.bus.messages == []
    house.artifacts.down = False
    assert (await house.relay(a_result(PAGE))).status_code == 202


async def test_a_store_that_does_not_answer_in_time_is_one_that_is_away() -> None:
    class Deaf(MemoryArtifacts):
        async def put(self, run_id: str, name: str, content: bytes, content_type: str) -> None:
            del run_id, name, content, content_type
            await asyncio.Event().wait()

    assert (await House(artifacts=Deaf(), answer_within_s=0.05).relay(a_result(PAGE))).status_code == 503


async def test_the_same_delivery_again_is_the_same_artifact_whatever_broke_in_between() -> None:
    house = House()
    house.bus.down = True
    assert (await house.relay(a_result(PAGE))).status_code == 503
    house.bus.down = False
    house.clock.pass_by(60)
    for _ in range(2):
        answer = await house.relay(a_result(PAGE), timestamp="2026-11-21T12:01:00Z")
        assert answer.status_code == 202
    assert len(house.artifacts.kept) == 1
    assert len(house.bus.messages) == 1


async def test_another_delivery_for_the_same_step_replaces_nothing_that_the_journal_knows() -> None:
    house = House()
    for number in range(2):
        event = a_result(f"{PAGE}{number}")
        await house.relay(event | {"origin": {"job_id": "job", "event_id": str(number)}})
    for result in house.bus.results:
        assert result.result is not None
        about = result.result.model_dump()["artifacts"][0]
        content, _ = house.artifacts.kept[RUN, about["path"].removeprefix("artifacts/")]
        assert hashlib.sha256(content).hexdigest() == about["sha256"]


@pytest.mark.parametrize("run_id", ["../other", "run/other", "", "x" * 129, 7, None, "run:1"])
async def test_for_what_is_no_name_of_a_run_nothing_is_stored(run_id: Any) -> None:
    house = House()
    answer = await house.relay(a_result(PAGE, run_id=run_id))
    assert answer.status_code == 422
    assert "other" not in error_of(answer)
    assert house.artifacts.kept == {}
    assert house.bus.messages == []


async def test_the_longest_names_and_numbers_have_an_artifact_too() -> None:
    house = House()
    await house.relay(a_result(PAGE, tool="t" * 64, step=2**53 - 1, attempt=2**53 - 1))
    assert ARTIFACT_PATH.fullmatch(told(house)["artifact_path"])


async def test_a_webhook_brings_large_results_too() -> None:
    mapping = {"to": "agentic.tool_result", "run_id": "/run", "step": "/step", "tool": "/tool", "result": "/page"}
    hook = {"scheme": "ductile", "keys": [{"secret": OLD}], "events": {"*": mapping}}
    house = House(webhooks={"pages": hook})
    body = json.dumps({"run": RUN, "step": 1, "tool": "fetch", "page": {"text": PAGE}}).encode()
    answer = await house.post("/webhooks/pages", body, {"X-Ductile-Signature-256": hex_of(body, OLD)})
    assert answer.status_code == 202
    assert [content for content, _ in house.artifacts.kept.values()] == [PAGE.encode()]


@pytest.mark.parametrize("error", ["no such page " * 1000, {"message": "no such page " * 1000, "retryable": True}])
async def test_a_long_reason_for_a_failure_is_cut_and_not_refused(error: Any) -> None:
    house = House()
    failed = {"run_id": RUN, "step": 1, "tool": "fetch", "status": "error", "error": error}
    assert (await house.relay(an_event(payload=failed))).status_code == 202
    told = house.events()[0]["payload"]["error"]
    assert told["message"].endswith(" characters are shown]")
    assert told["retryable"] is isinstance(error, dict)


async def test_in_the_bucket_it_is_what_the_event_on_the_bus_says(link: NatsLink) -> None:
    await a_bus(link)
    bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
    house = House(bus=NatsBus(link), artifacts=NatsArtifacts(bucket))
    for _ in range(2):
        assert (await house.relay(a_result({"content": PAGE, "links": LINKS}))).status_code == 202
    (result,) = await results(link)
    stored = await bucket.list(f"{RUN}/")
    assert len(stored) == 2
    assert {(one.key, one.size, one.sha256) for one in stored} == {_described(one) for one in _listed(result)}


def _listed(result: ToolResult) -> list[dict[str, Any]]:
    assert result.result is not None
    listed: list[dict[str, Any]] = result.result.model_dump()["artifacts"]
    return listed


def _described(about: dict[str, Any]) -> tuple[str, int, str]:
    return about["path"].replace("artifacts", RUN), about["size"], about["sha256"]
