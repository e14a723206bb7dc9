"""Journals for tests: stories decided by the core, as commits."""

import hashlib
from collections.abc import Sequence
from typing import Any

from agent_service.core.brief import Brief
from agent_service.core.events import ModelUsage, Provenance, WakeAccepted
from agent_service.core.phases import Action, Decision, Framing, ItemClaim, Plan, Reflection, Unusable, Verdict
from agent_service.run.journal import Commit, Entry, replay
from agent_service.store.shared import SharedStore
from agent_service.views.pages import pages
from schemas.catalog import ToolCommand, ToolOffer
from schemas.values import replace
from tests.core.cues import (
    RUN_ID,
    limits,
    replies,
    reserves,
    returns,
    started,
)
from tests.core.script import NOON, Cue, Script, commits_of
from tests.core.words import run_at
from tests.kit.runs import DIGEST

MODEL = "claude-sonnet-4-5"
USAGE = ModelUsage(input_tokens=800, output_tokens=120, cost_usd=0.0042)
PAGE = b"<html><h1>Matt Joyce</h1></html>"
CRITIQUE = b"The page is plain.\n\nIt could say more.\n"

FETCH = ToolOffer(
    name="fetch",
    route="jina-reader",
    description="Reads web pages.",
    timeout_s=30.0,
    output="trusted",
    commands=(
        ToolCommand(
            name="handle",
            description="Fetch one page.",
            tier="read",
            input_schema={
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "Where the page is."},
                    "depth": {"type": "integer"},
                },
                "required": ["url"],
            },
        ),
    ),
)
REPORT = ToolOffer(
    name="text-report",
    route="fabric",
    description="Writes texts.",
    output="trusted",
    commands=(ToolCommand(name="handle", description="Write a text.", tier="write", idempotent=True, effect="local"),),
)


async def committed(store: SharedStore, commit: Commit) -> None:
    if commit.entry.seq == 1:
        await store.accept(commit, DIGEST)
    else:
        await store.caught_up()
        await store.load(commit.entry.run_id)
        await store.commit(commit)


def entries_of(script: Script) -> list[Entry]:
    return [commit.entry for commit in commits_of(script)]


def pages_of(entries: Sequence[Entry]) -> dict[str, str]:
    *_, last = replay(entries)
    return pages(last.state, [entry.record() for entry in entries])


def on(script: Script, *cues: Cue) -> Script:
    """Continues the story, one second per event."""
    for cue in cues:
        script = script.wait(seconds=1) >> cue
    return script


def second_by_second(*cues: Cue) -> Script:
    return on(Script(), *cues)


def asked_for(goal: str, *, run_id: str = RUN_ID, **context: Any) -> WakeAccepted:
    brief = Brief(goal=goal, limits=limits(), announced=True, context=context)
    return WakeAccepted(at=NOON, run_id=run_id, wake_id="wake-1", brief=brief)


def thinks(decision: Decision, plan: Plan | Unusable | None = None, **changes: Any) -> Cue:
    """A named model decides, with its usage; `changes` are fields of the reply."""
    reply: Any = replies(decision, plan=plan)
    return lambda script: replace(reply(script), **{"model": MODEL, "usage": USAGE, **changes})


def brought(path: str, content: bytes, kind: str, **output: Any) -> Cue:
    """The pending tool returns this artifact and further fields."""
    told = {"path": path, "content_type": kind, "size": len(content)}
    return returns(output={"artifacts": [told | {"sha256": hashlib.sha256(content).hexdigest()}], **output})


FETCHED = brought(
    *("artifacts/fetch-01.html", PAGE, "text/html"),
    artifact_path="artifacts/fetch-01.html",
    content_type="text/html",
    excerpt="Matt Joyce",
)
REPORTED = brought("artifacts/critique.md", CRITIQUE, "text/plain", summary="wrote 2 paragraphs")


FRAMING = Framing(
    goal_statement="A two-paragraph critique of mattjoyce.ai exists.",
    definition_of_done=("the page is fetched", "the critique is written", "it has two paragraphs"),
    constraints=("be constructive",),
    assumptions=("the page is public",),
    hypothesis="one fetch is enough",
)
FETCHING = Plan(
    action=Action(tool="fetch", command="handle", arguments={"url": "http://mattjoyce.ai"}),
    outline=("fetch the page", "write the critique"),
    expected_outcome="the page's text",
    risk="none",
    rationale="nothing can be said about a page unseen",
)
WRITING = Plan(
    action=Action(tool="text-report", command="handle", arguments={"from": "artifacts/fetch-01.html"}),
    outline=("write the critique",),
    expected_outcome="two paragraphs",
    risk="the text may be too long",
    rationale="the page is known now",
)
SEEN = Reflection(
    verdict=Verdict.CONTINUE,
    summary="the page is there",
    met=(ItemClaim(item="d1", evidence="step:1"),),
    facts=("the page has one heading",),
)
WRITTEN = Reflection(
    verdict=Verdict.DONE,
    summary="both paragraphs are written",
    met=(ItemClaim(item="d2", evidence="artifacts/critique.md"), ItemClaim(item="d3", evidence="step:2")),
    outcome="Two paragraph critique generated in artifacts/critique.md",
)
GOAL = "fetch web http://mattjoyce.ai and produce a 2 para critique"


def worked_example(*, model: str = MODEL, run_id: str = RUN_ID) -> Script:
    """RFC-103's example: fetch a page and criticise it."""
    return second_by_second(
        asked_for(GOAL, run_id=run_id, tone="constructive", max_steps=6),
        started((FETCH, REPORT)),
        thinks(FRAMING, model=model),
        thinks(FETCHING, model=model),
        FETCHED,
        thinks(SEEN, WRITING, model=model),
        REPORTED,
        thinks(WRITTEN, model=model),
    )


MADE = Provenance(prompt_hash="aaaa", schema_hash="bbbb", reply_id="msg_1", stop_reason="end_turn")
CACHED = ModelUsage(input_tokens=5000, output_tokens=120, cost_usd=0.01, cache_read_tokens=4200, cache_write_tokens=300)


def priced_example() -> Script:
    """RFC-103's example with a priced model: a fused opening, a lost call, caches."""
    return second_by_second(
        asked_for(GOAL),
        started((FETCH, REPORT)),
        reserves(9000, 0.1),
        thinks(FRAMING, FETCHING, provenance=MADE),
        FETCHED,
        reserves(9000, 0.1),
        reserves(9000, 0.1),
        thinks(SEEN, WRITING, usage=CACHED, provenance=MADE),
        REPORTED,
        reserves(9000, 0.1),
        thinks(WRITTEN, usage=CACHED, provenance=MADE),
    )


def two_rounds() -> Script:
    """A task with a continuation of its own, a failing task with a dependent, and a tool that continues twice."""
    begun = 'run waiting ; continue ["a look", "b", "c - b"] ; fail b'
    deeper = "continue deeper a ; come a.task-1 ; come a.again"
    return run_at(f'{begun} ; {deeper} ; continue "once more" again ; come task-1 ; come again', pace=1)
