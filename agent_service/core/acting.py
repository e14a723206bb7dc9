"""Sends tool requests, retries them, ends their steps, and detects identical calls and writes in doubt.

A request is in the state before it is sent. A retry is a new attempt of the same step, after a retryable error of a
read or idempotent command. A write with an unknown outcome is in doubt: it is never resent, and it blocks writes of
its tool until a read of that tool succeeds.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.core import limits, notes
from agent_service.core.brief import Brief
from agent_service.core.facts import AnswerStatus, AttemptAnswered, RequestFinished, RequestSent, RetrySet
from agent_service.core.phases import Action, Plan
from agent_service.core.state import Child, Doubt, RunState, StepRecord, with_facts
from agent_service.core.waiting import Acting, Pending, Question, acting_of, with_requests, without_request
from agent_service.sentences import Text, say
from schemas import subjects
from schemas.events import ARTIFACT_PATH, Outcome, Signal, ToolError, ToolResult
from schemas.values import replace

ANSWER_GRACE_S = 10.0
"""Time for the gateway's own timeout to arrive."""
MAX_BACKOFF_S = 120.0
SAME_RESULT_LIMIT = 3
LONGEST_PATH, MOST_NAMED = 120, 20
MAX_SUMMARY, MAX_SENT = 500, 16_000
CALL_FIELDS = frozenset({"job_id", "attempts", "last_error"})
"""Fields that an executor adds to the tool's result."""
StepStatus = Literal["ok", "error", "budget"]
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def action_flaws(brief: Brief, action: Action) -> tuple[Text, ...]:
    skill = brief.skill(action.tool)
    if skill is None:
        offered = ", ".join([s.name for s in brief.skills]) or "none"
        return (say("tool_unknown", tool=action.tool[:64], offered=offered),)
    if skill.route in subjects.OUR_OWN_ROUTES and brief.depth >= brief.limits.max_depth:
        return (say("too_deep", tool=action.tool),)
    if brief.command(action) is None:
        commands = ", ".join([c.name for c in skill.commands])
        return (say("command_unknown", tool=action.tool, command=action.command[:64], commands=commands),)
    return ()


def artifact_flaws(state: RunState, action: Action) -> list[Text]:
    command, flaws = state.brief.command(action), list[Text]()
    properties = command.input_schema.get("properties") if command else None
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        path, named = action.arguments.get(name), isinstance(schema, dict) and schema.get("format") == "artifact"
        if named and isinstance(path, str) and path not in state.artifacts:
            newest = ", ".join(state.artifacts[-MOST_NAMED:]) or "none"
            flaws.append(say("artifact_unknown", argument=name, path=path[:LONGEST_PATH], newest=newest))
    return flaws


# Sending


def dispatch(state: RunState, plan: Plan, *, by: str = "") -> RunState:
    at, actions = state.updated_at, enumerate(plan.actions, start=state.step + 1)
    requests = [Pending(step=n, action=one, requested_at=at, deadline_at=at, until=at) for n, one in actions]
    state = replace(state, step=requests[-1].step, waiting=Acting(requests=tuple(requests)))
    for one in requests:
        state = send(state, one, by=by)
    if not plan.also:
        return state
    sent = tuple([say("act", **sentence_fields(one)) for one in acting_of(state.waiting).requests])
    return replace(state, summary=say("acts", actions=sent))


def send(state: RunState, request: Pending, *, by: str = "") -> RunState:
    """Sends the first or the next attempt. `by`: the person who approved it."""
    at, brief = state.updated_at, state.brief
    skill = brief.skill(request.action.tool)
    assert skill is not None, "a tool that is asked is one of the skills"
    until = at + timedelta(seconds=skill.timeout_s + brief.limits.queue_wait_s)
    sent = replace(
        request,
        attempt=request.attempt or 1,
        route=skill.route,
        requested_at=at,
        deadline_at=until + timedelta(seconds=ANSWER_GRACE_S),
        until=min(brief.limits.deadline_at, until),
        untrusted=bool(state.tainted_by),
        retry_at=None,
    )
    children = state.children
    if limits.needs_grant(brief, sent.action.tool):
        sent = limits.with_grant(state, sent)
        children = (*children, Child(run_id=limits.child_run_id(state.run_id, sent), **sent.ref))
    return with_facts(
        state,
        RequestSent(pending=sent, approved_by=by),
        waiting=with_requests(state.waiting, sent),
        # first attempts of tasks have limits of their own
        attempts=state.attempts + (not sent.task or sent.attempt > 1),
        children=children,
        summary=say("act", **sentence_fields(sent)),
    )


def sentence_fields(pending: Pending) -> dict[str, Any]:
    action, attempt = pending.action, pending.attempt
    again = attempt if attempt > 1 else 0
    return {**pending.ref, "tool": action.tool, "command": action.command, "attempt": attempt, "again": again}


# Trying again


def plan_retry(state: RunState, pending: Pending, error: ToolError) -> RunState | None:
    limits = state.brief.limits
    if not is_retryable(state, pending, error) or pending.attempt >= limits.max_attempts or attempts_left(state) <= 0:
        return None
    # doubles, plus a jitter of up to a quarter: derived from the call, so that a replay gives the same
    which = [pending.task, pending.round] if pending.task else []
    jitter = int(digest([state.run_id, pending.step, pending.attempt, *which])[:4], 16) / 0xFFFF
    delay_s = min(MAX_BACKOFF_S, limits.retry_base_s * float(2 ** (pending.attempt - 1))) * (1 + jitter / 4)
    following = replace(pending, attempt=pending.attempt + 1, retry_at=state.updated_at + timedelta(seconds=delay_s))
    summary = say("retries", **sentence_fields(following), error_class=error.error_class)
    waiting = with_requests(state.waiting, following)
    return with_facts(state, RetrySet(pending=following), waiting=waiting, summary=summary)


def attempts_left(state: RunState) -> int:
    retries = sum([pending.retry_at is not None for pending in state.pendings])
    return state.brief.limits.max_attempts_of_run - state.attempts - retries


def is_retryable(state: RunState, pending: Pending, error: ToolError) -> bool:
    return error.retryable and pending.grant is None and is_repeatable(state, pending)


def is_repeatable(state: RunState, pending: Pending) -> bool:
    command = state.brief.command(pending.action)
    return command is not None and (command.tier == "read" or command.idempotent)


# Identical calls


def stuck_action(state: RunState, plan: Plan) -> Action | None:
    """The first action of the plan that has brought its newest result too often since the last wait."""
    for action in plan.actions if len(state.completed) >= SAME_RESULT_LIMIT else ():
        call, since = call_hash(action), state.waited_at_step
        outcomes = [record.outcome for record in state.completed if record.call == call and record.step > since]
        if outcomes and outcomes.count(outcomes[-1]) >= SAME_RESULT_LIMIT:
            return action
    return None


def call_hash(action: Action) -> str:
    return digest([action.tool, action.command, action.payload])


def digest(value: object) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:32]


# Finished requests


def finish_step(state: RunState, pending: Pending, status: StepStatus, output: dict[str, JsonValue]) -> RunState:
    action, is_ok, writes = pending.action, status == "ok", state.brief.writes(pending.action)
    sent, finished = action.arguments if writes and is_ok else None, request_finished(pending, status, output)
    record = StepRecord(
        step=pending.step,
        tool=action.tool,
        command=action.command,
        attempt=pending.attempt,
        status=status,
        summary=finished.summary,
        call=call_hash(action),
        outcome=digest([is_ok, _comparable(output)]),
        seconds=max(0.0, (state.updated_at - pending.requested_at).total_seconds()),
        sent=sent and {name: v[:MAX_SENT] if isinstance(v, str) else v for name, v in sent.items()},
    )
    waiting, left = without_request(state.waiting, pending)
    leads = state.plan is None or pending.step <= state.step - len(state.plan.also)
    clears = state.doubts and is_ok and not writes
    return with_facts(
        state,
        finished,
        notes=notes.with_step(state, pending, record, output, leads=leads),
        reflection=None if leads else state.reflection,
        waits=0,
        waiting=waiting,
        evidence=state.evidence if left.graphs else (),
        places=state.places if left.requests else (),
        completed=(*state.completed, record),
        last_output=output,
        doubts=tuple([one for one in state.doubts if one.tool != action.tool]) if clears else state.doubts,
        summary=say("step_ended", step=record.step, tool=action.tool, status=status),
    )


def request_finished(pending: Pending, status: StepStatus, output: dict[str, JsonValue]) -> RequestFinished:
    return RequestFinished(
        step=pending.step,
        task=pending.id,
        round=pending.place[0],
        tool=pending.action.tool,
        command=pending.action.command,
        status=status,
        summary=output_summary(output),
        error_class="" if status == "ok" else str(output.get("class", "")),
    )


def attempt_answered(pending: Pending, status: AnswerStatus, error: ToolError | None = None) -> AttemptAnswered:
    tool, attempt = pending.action.tool, pending.attempt
    return AttemptAnswered(**pending.ref, attempt=attempt, tool=tool, status=status, error=error)


def substitute_result(state: RunState, pending: Pending, **brought: Any) -> ToolResult:
    """A result in place of the executor's, dated by the event in hand."""
    about = {"run_id": state.run_id, "tool": pending.action.tool, "attempt": pending.attempt or 1}
    return ToolResult(completed_at=state.updated_at, **about, **pending.correlation, **brought)


def failure(state: RunState, pending: Pending, error_class: str, why: Text, *, retryable: bool = False) -> ToolResult:
    error = ToolError(error_class=error_class, message=str(why), retryable=retryable)
    return substitute_result(state, pending, status="error", error=error)


def _comparable(output: dict[str, JsonValue]) -> object:
    """The output without fields that differ from call to call; artifacts by their digests."""
    artifacts, ignored = output.get("artifacts"), CALL_FIELDS | {"artifact_path"}
    if not isinstance(artifacts, list):
        return {key: value for key, value in output.items() if key not in ignored}
    ignored |= {"artifacts", "excerpt"}
    digests = [artifact.get("sha256") for artifact in artifacts if isinstance(artifact, dict)]
    return [digests, {key: value for key, value in output.items() if key not in ignored}]


def result_output(result: ToolResult) -> dict[str, JsonValue]:
    if result.error is not None and result.status != "ok":
        return {"class": result.error.error_class, "message": result.error.message}
    return result.result.as_json() if result.result else {}


def output_summary(output: dict[str, JsonValue]) -> str:
    text = output.get("summary") or output.get("message") or output.get("excerpt") or json.dumps(output)
    return str(text)[:MAX_SUMMARY]


def with_artifacts(state: RunState, result: ToolResult) -> RunState:
    output = result.result
    new = artifacts_in({"artifact_path": output.artifact_path, **(output.model_extra or {})}) if output else ()
    return replace(state, artifacts=tuple(dict.fromkeys((*state.artifacts, *new)))) if new else state


def artifacts_in(output: Mapping[str, JsonValue]) -> list[str]:
    """Paths of the artifacts that a tool's output names."""
    listed = output.get("artifacts")
    others = [each.get("path") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else ()
    named = output.get("artifact_path"), *others
    return [path for path in named if isinstance(path, str) and ARTIFACT_PATH.fullmatch(path)]


def source_of_taint(state: RunState, pending: Pending, result: ToolResult) -> Text:
    """The run's source, else an executor's result, unless the tool declares its output trusted."""
    if state.tainted_by:
        return state.tainted_by
    action = pending.action
    skill, command = state.brief.skill(action.tool), state.brief.command(action)
    declared = (command and command.output) or (skill and skill.output)
    output = (result.result.model_extra or {}).get("output") if result.result else None
    marked = result.untrusted or (isinstance(output, dict) and output.get("untrusted") is True)
    return "" if declared == "trusted" and not marked else say("step_of", step=pending.step, tool=action.tool)


# Doubts

_DID_NOT = re.compile(r"(?:no\W+)?it (?:did not|didn't) run(?:[.:;!](?:\s.*)?)?", re.DOTALL)
_RAN = re.compile(r"(?:yes\W+)?it (?:did run|ran)(?:[.:;!](?:\s.*)?)?", re.DOTALL)
"""The choices that the question about a doubt offers, as whole sentences: `it ran, I think` is neither."""


def stated_outcome(signal: Signal) -> Outcome:
    if signal.outcome is not None or signal.untrusted:
        return signal.outcome or "look"
    words = (signal.message or "").strip().casefold().replace("\u2019", "'")
    return "did_not_run" if _DID_NOT.fullmatch(words) else "ran" if _RAN.fullmatch(words) else "look"


def doubts_asked_about(state: RunState) -> tuple[Doubt, ...]:
    """Doubts that the open question is about, and a stated outcome settles: the only one, or those of the tools that it
    names.
    """
    if not isinstance(state.ask, Question):
        return ()
    named = re.findall(r"[\w-]+", state.ask.ask.question)
    return tuple([doubt for doubt in state.doubts if len(state.doubts) == 1 or doubt.tool in named])


def new_doubt(pending: Pending) -> Doubt:
    return Doubt(step=pending.step, tool=pending.action.tool, call=call_hash(pending.action))


def doubt_flaws(state: RunState, action: Action) -> list[Text]:
    if not state.doubts or not state.brief.writes(action) or not (skill := state.brief.skill(action.tool)):
        return []
    reads = " or ".join([command.name for command in skill.commands if command.tier == "read"])
    name = "look_first" if reads else "ask_first"
    return [say(name, step=one.step, tool=one.tool, reads=reads) for one in state.doubts if one.tool == action.tool]
