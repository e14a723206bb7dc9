"""POST /ingest/ductile: every check in order, the resulting messages, malformed heads, and a bus that is away."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from ductile_gateway.calls.call import CALL_ID
from ductile_gateway.webhooks.mapping import MAX_INLINE_BYTES
from schemas import keys
from schemas.events import ARTIFACT_PATH
from tests.gateway.ingress.kit import INGEST, NEXT_SECRET, NOW, RESULT, Ingress, an_event, error_of, on_the_wire, signed
from tests.gateway.parts import ASKS, FETCH, FORM, PAGES, RUN, MemoryBus

GIVEN, NEWER = "k1.first", "k2.newer"
BAGGAGE = {"run_id": RUN, "step": 2, "tool": "fetch"}


async def test_a_signed_result_is_on_the_bus_when_it_is_answered() -> None:
    ingress = Ingress()
    answer = await ingress.relay(an_event())
    told = {"receiver_event_id": keys.result(RUN, 1, 1), "job_id": RUN}
    told |= {"status": "accepted", "peer": "ductile-test", "event_type": "agentic.tool_result"}
    assert (answer.status_code, answer.json()) == (202, told)
    event = {"type": "agentic.tool_result", "payload": RESULT, "dedupe_key": keys.result(RUN, 1, 1)}
    assert ingress.events() == [event]
    subject, key, _, headers = ingress.bus.messages[0]
    assert (subject, key, headers["Agentic-Run-Id"]) == ("agentic.tool_result", keys.result(RUN, 1, 1), RUN)


@pytest.mark.parametrize(
    "changed",
    [
        {"without": "peer"},
        {"peer": "another"},
        {"timestamp": "noon"},
        {"timestamp": "2026-11-21T11:54:59Z"},
        {"timestamp": "2026-11-21T12:05:01Z"},
        {"key_id": "v3"},
        {"signature": ""},
        {"signature": "0" * 64},
        {"signature": "\u00e9"},
        {"secret": NEXT_SECRET},
        {"path": "/ingest/peer"},
    ],
)
@pytest.mark.attack(20, 22)
async def test_who_does_not_sign_as_agreed_is_refused_and_learns_no_name_of_a_peer_or_key(
    changed: dict[str, Any],
) -> None:
    ingress = Ingress()
    answer = await ingress.relay(an_event(), **changed)
    assert (answer.status_code, error_of(answer), ingress.bus.messages) == (403, "forbidden", [])


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "invalid JSON body"),
        (b"[]", 400, "no event of a relay"),
        (b'{"event": []}', 400, "no event of a relay: event"),
        # Others could read this otherwise.
        (b'{"event": {"type": "agentic.start", "type": "report.done"}}', 400, "invalid JSON body"),
        (b"{}", 400, "no event of a relay: event"),
        (b'{"event": {"type": "Not.Lower"}}', 400, "no event of a relay: event.type"),
        (b'{"event": {"type": "report.done"}, "origin": {"instance": "x"}}', 403, "origin instance mismatch"),
        (b'{"event": {"type": "another"}}', 422, "event type not allowed for peer"),
        (b'{"event": {"type": "report.done"}}', 422, "event type is not mapped"),
        (b'{"event": {"type": "agentic.tool_result"}}', 422, "no valid agentic.tool_result"),
        (b'{"event": {"type": "agentic.start", "payload": {"goal": " "}}}', 422, "no valid agentic.start"),
        (b'{"event": {"type": "alarm.raised"}}', 422, "the event has nothing at /payload/what"),
        (json.dumps(an_event("agentic.start", {"goal": "x" * 33_000})).encode(), 422, "no valid agentic.start"),
    ],
)
async def test_a_signed_body_that_is_no_event_for_us_is_refused(body: bytes, status: int, error: str) -> None:
    ingress = Ingress()
    answer = await ingress.post(INGEST, body, signed(body))
    assert (answer.status_code, error_of(answer)[: len(error)], ingress.bus.messages) == (status, error, [])


async def test_an_event_is_known_by_its_dedupe_key_else_by_its_origin_else_by_its_body() -> None:
    ingress = Ingress()
    named = an_event("agentic.start", {"goal": "Find it."})
    bare = named | {"origin": {}}
    for event in (named, named | {"origin": {"event_id": "event-2", "job_id": "job-1"}}, bare):
        for _ in range(2):
            assert (await ingress.relay(event)).status_code == 202
    keyed = {"event": {"type": "agentic.start", "payload": {"goal": "Find it."}, "dedupe_key": "night 12"}}
    for job in ("job-1", "job-2"):
        await ingress.relay(keyed | {"origin": {"job_id": job, "event_id": job}})
    body, key = (hashlib.sha256(text).hexdigest() for text in (json.dumps(bare).encode(), b"ductile-test:night 12"))
    ids = [f"ductile-test:{name}" for name in ("job-1:event-1", "job-1:event-2", body)]
    assert [key for _, key, _, _ in ingress.bus.messages] == [f"agentic:start:{id_}" for id_ in (*ids, f"sha256-{key}")]


SAID = {"goal": "Find it.", "context": {"tone": "dry", "run_id": "run_other"}, "constraints": {"max_steps": 3}}
RESERVED = {"run_id": "run_other", "wake_id": "other", "callback": "http://169.254.169.254/"}
STARTED = {"goal": "Find it.", "context": {}, "constraints": {}, "by": "ductile-test"}
FAILED = {"run_id": RUN, "step": 1, "tool": "fetch", "status": "error", "completed_at": NOW}
ENDED = {"status": "ok", "completed_at": NOW}
ANSWERED = {"run_id": RUN, "signal_id": "ductile-test:job-1:event-1", "kind": "answer", "message": "the blue one"}
FORM_ASKS = {"action": "retrieve", "query": "what may be relaxed?", "reason": "unsat"}
SUB, SUCCESS = ("task-1", 2), PAGES[1].replace("jina-reader", "fetch")


def relayed(**more: Any) -> dict[str, Any]:
    return an_event(payload=RESULT | more)


def report(brought: Any, /, **baggage: Any) -> dict[str, Any]:
    return an_event("report.done", brought, baggage=BAGGAGE | baggage)


@pytest.mark.attack(47, 98)
@pytest.mark.parametrize(
    ("event", "payload"),
    [
        # A start from outside names neither its run nor whom to call back; Ductile says untrusted content.
        (
            an_event("agentic.start", SAID | RESERVED | {"by": "root"}),
            STARTED | {"context": {"tone": "dry"}, "constraints": {"max_steps": 3}},
        ),
        (an_event("alarm.raised", {"what": "the pump"}), STARTED | {"goal": "Look into the pump."}),
        (an_event("agentic.start", {"goal": "Find it.", "untrusted": True}), STARTED | {"untrusted": True}),
        (an_event("person.answered", {"run": RUN, "words": "the blue one"}), ANSWERED | {"by": "ductile-test"}),
        # What answers a step is named by the baggage, and never by the payload.
        (
            report({"title": "A page", **RESERVED}, attempt=3, status="error", more="x"),
            BAGGAGE | ENDED | {"attempt": 3, "result": {"title": "A page", "callback": RESERVED["callback"]}},
        ),
        (
            report({"text": "hello", "untrusted": "true"}),
            BAGGAGE | ENDED | {"result": {"text": "hello", "untrusted": "true"}, "untrusted": True},
        ),
        (relayed(untrusted=True), RESULT | {"untrusted": True}),
        (relayed(result="done"), RESULT | {"result": {"summary": "done"}}),
        (relayed(result=[1]), RESULT | {"result": {"output": [1]}}),
        (an_event(payload=FAILED | {"status": "ok", "result": None}), FAILED | {"status": "ok"}),
        (
            an_event(payload=FAILED | {"error": "no such page"}),
            FAILED | {"error": {"error_class": "tool_error", "message": "no such page", "retryable": False}},
        ),
        # The proof of a request comes back in the baggage, or in a result's own field; not in what it brought.
        (report({"text": "found"}, capability=GIVEN), {"capability": GIVEN, "result": {"text": "found"}}),
        (report({"capability": NEWER, "a": 1}), {"capability": None, "result": {"a": 1}}),
        (relayed(capability=GIVEN), {"capability": GIVEN}),
        (relayed(capability=NEWER) | {"baggage": {"capability": GIVEN}}, {"capability": GIVEN}),
        (relayed(result={"capability": NEWER, "a": 1}), {"capability": None, "result": {"a": 1}}),
        # So does the call, by which a sub-request is known.
        (report({}, **{CALL_ID: keys.call(RUN, 2, "fetch", 1, *SUB)}), {"task": SUB[0], "round": SUB[1]}),
        (report({}, **{CALL_ID: keys.call(RUN, 2, "fetch", 1)}), {"task": None, "round": None}),
        (report({}, **{CALL_ID: keys.call("run_of_another", 2, "fetch", 1, *SUB)}), {"task": None, "round": None}),
        (report({}, **{CALL_ID: 7}), {"task": None, "round": None}),
        # A tool that needs something says so in either form, and no stranger does in its place.
        (
            relayed(result={"continuation": ASKS}),
            {"status": "continuation", "result": {"summary": "", "continuation": ASKS}},
        ),
        (
            relayed(result={"summary": FORM.replace("jina-reader", "fetch"), "job_id": "job-7"}),
            {"status": "continuation", "result": {"summary": "unsat", "job_id": "job-7", "continuation": FORM_ASKS}},
        ),
        (
            relayed(status="continuation", result={"summary": FORM}),
            {"status": "continuation", "result": {"summary": FORM}},
        ),
        (relayed(result={"continuation": ASKS}, untrusted=True), {"status": "ok", "result": {"continuation": ASKS}}),
        (relayed(result={"summary": FORM}, untrusted=True), {"status": "ok", "result": {"summary": FORM}}),
        (relayed(result={"summary": SUCCESS}), {"status": "ok", "result": {"summary": SUCCESS}}),
        (relayed(result={"summary": FORM.replace("jina-reader", "a-page")}), {"status": "ok"}),
        (relayed(result={"summary": f"{PAGES[1]}\nStatus: continuation\n"}), {"status": "ok"}),
        (
            relayed(result={"summary": PAGES[2]}),
            {
                "status": "error",
                "result": None,
                "error": {"error_class": "tool_error", "message": "no such variable", "retryable": False},
            },
        ),
    ],
)
async def test_an_event_becomes_what_its_type_its_mapping_or_its_baggage_says(event: Any, payload: Any) -> None:
    ingress = Ingress(offers=[FETCH])
    assert (await ingress.relay(event)).status_code == 202
    found = ingress.payload()
    whole = {"by", "completed_at"} & payload.keys()
    assert (found if whole else {name: found.get(name) for name in payload}) == payload
    assert ("Agentic-Run-Id" in ingress.bus.messages[0][3]) == ("run_id" in found)
    if "step" in found:
        sub = (found.get("task"), found.get("round"))
        assert ingress.events()[0]["dedupe_key"] == keys.result(RUN, found["step"], found.get("attempt", 1), *sub)


@pytest.mark.parametrize(
    "offers",
    [(), [FETCH.model_copy(update={"output": "untrusted"})], [FETCH.model_copy(update={"continues": False})]],
    ids=["unknown", "untrusted", "never"],
)
async def test_a_page_that_a_pipeline_hands_on_asks_for_nothing_in_the_name_of_its_tool(offers: Any) -> None:
    for page in PAGES:
        ingress = Ingress(offers=offers)
        brought = {"result": page.replace("jina-reader", "fetch"), "continuation": ASKS}
        await ingress.relay(report(brought))
        assert (ingress.payload()["status"], ingress.payload()["result"]) == ("ok", brought)


PAGE = "# A page\n" + "A line of it — ü.\n" * 1000
LINKS = [f"https://example.org/{number:04d}" for number in range(1000)]


async def test_a_large_result_is_an_artifact_that_the_event_names() -> None:
    ingress = Ingress()
    assert (await ingress.relay(relayed(result={"summary": "Fetched it", "links": LINKS}))).status_code == 202
    [(key, (content, content_type))] = ingress.artifacts.kept.items()
    run_id, _, name = key.partition("/")
    assert (run_id, json.loads(content), content_type) == (RUN, {"links": LINKS}, "application/json")
    result = ingress.payload()["result"]
    assert (result["summary"], result["artifact_path"]) == ("Fetched it", f"artifacts/{name}")
    assert ARTIFACT_PATH.fullmatch(result["artifact_path"])
    assert result["excerpt"].startswith('{\n"links": [\n"https://example.org/0000"')
    about = {"path": f"artifacts/{name}", "content_type": content_type, "size": len(content)}
    assert result["artifacts"] == [about | {"sha256": hashlib.sha256(content).hexdigest()}]


async def test_what_an_event_can_carry_is_carried_as_it_is() -> None:
    room = MAX_INLINE_BYTES - len(json.dumps({"text": ""}, separators=(",", ":")))
    for length, inline in ((room, True), (room + 1, False)):
        ingress = Ingress()
        await ingress.relay(relayed(result={"text": "x" * length}))
        assert ("text" in ingress.payload()["result"], not ingress.artifacts.kept) == (inline, inline)


async def test_the_same_delivery_again_is_the_same_artifact_whatever_broke_in_between() -> None:
    ingress = Ingress()
    ingress.bus.down = True
    assert (await ingress.relay(relayed(result=PAGE))).status_code == 503
    ingress.bus.down = False
    ingress.clock.advance(60)
    answers = [await ingress.relay(relayed(result=PAGE), timestamp="2026-11-21T12:01:00Z") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert (len(ingress.artifacts.kept), len(ingress.bus.messages)) == (1, 1)


async def test_another_delivery_for_the_same_step_replaces_nothing_that_the_journal_knows() -> None:
    ingress = Ingress()
    for number in range(2):
        origin = {"origin": {"job_id": "job", "event_id": str(number)}}
        await ingress.relay(relayed(result=f"{PAGE}{number}") | origin)
    for event in ingress.events():
        (about,) = event["payload"]["result"]["artifacts"]
        content, _ = ingress.artifacts.kept[about["path"].replace("artifacts", RUN, 1)]
        assert hashlib.sha256(content).hexdigest() == about["sha256"]


@pytest.mark.parametrize("run_id", ["../other", "run/other", "", "x" * 129, 7, None, "run:1"])
async def test_for_what_is_no_name_of_a_run_nothing_is_stored(run_id: Any) -> None:
    ingress = Ingress()
    answer = await ingress.relay(relayed(result=PAGE, run_id=run_id))
    assert (answer.status_code, "other" in error_of(answer)) == (422, False)
    assert (ingress.artifacts.kept, ingress.bus.messages) == ({}, [])


BODY = json.dumps(an_event()).encode()


def delivery(target: str = INGEST, *more: str, body: bytes = BODY) -> bytes:
    """A signed delivery on the wire, with more lines in its head."""
    sent = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": str(len(body))} | signed(body)
    if "Transfer-Encoding: chunked" in more:
        del sent["Content-Length"]
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), *more]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


async def status_of(ingress: Ingress, *parts: bytes) -> int:
    async with on_the_wire(ingress) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            writer.write(part)
            await writer.drain()
        try:
            return int((await asyncio.wait_for(reader.read(), 10)).split(b" ", 2)[1])
        finally:
            writer.close()


async def test_a_body_beyond_the_limit_is_refused_before_its_signature_is_looked_at() -> None:
    ingress = Ingress(max_body_bytes=1024)
    answer = await ingress.post(INGEST, b"x" * 1025, signed(b"another body"))
    assert (answer.status_code, error_of(answer)) == (413, "the body has more than 1024 bytes")
    assert (await ingress.post(INGEST, b"x" * 1024, signed(b"another body"))).status_code == 403
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    assert await status_of(ingress, delivery(INGEST, "Transfer-Encoding: chunked", body=chunk), chunk) == 413


async def test_a_bus_that_does_not_answer_in_time_is_a_bus_that_is_away() -> None:
    class DeafBus(MemoryBus):
        async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
            del subject, body, key, headers
            await asyncio.Event().wait()

    assert (await Ingress(bus=DeafBus(), within_s=0.05).relay(an_event())).status_code == 503


NOWHERE = """
    /webhooks/%2e%2e/x /webhooks/%2e%2e%2fingest%2fductile //ingest/ductile /ingest//ductile /ingest/./ductile
    /ingest/ductile;x /ingest/ductile/ /ingest/ductile%00 /ingest/ductile%0a /healthz/../ingest/ductile /healthz%0a
    /INGEST/ductile *
"""


@pytest.mark.parametrize(
    ("target", "line", "status"),
    [
        *((target, "X-Nothing: 1", 404) for target in NOWHERE.split()),
        (INGEST, "Host: 127.0.0.1", 421),
        (INGEST, "X-Ductile-Peer: ductile-test", 403),
        (INGEST, "x-ductile-timestamp: 2026-11-21T12:00:00Z", 403),
        (INGEST, "Upgrade: websocket", 202),
        (INGEST, "X_Ductile_Peer: another", 202),
        (INGEST, "X-Forwarded-Host: evil.example", 202),
    ],
)
async def test_a_path_is_taken_as_it_is_written_and_a_head_has_one_meaning_or_none(
    target: str, line: str, status: int
) -> None:
    ingress = Ingress()
    assert await status_of(ingress, delivery(target, line)) == status
    assert len(ingress.bus.messages) == (status == 202)
