"""The rules of calls: which may be made, and what follows from one whose end was not seen. Pure.

Everything that the agent checked is checked again. Refusals that another plan can mend are `invalid_arguments` or
`not_found`; `not_allowed` is for a person. A write with an unknown outcome is in doubt: it is never run again.
"""

import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta

from ductile_gateway.calls.artifacts import artifact_arguments, name_in
from ductile_gateway.calls.call import (
    Asked,
    Intent,
    JobFacts,
    NeverStarted,
    ToolOutcome,
    Unknown,
    Verdict,
    failed,
)
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from schemas.events import RESERVED_KEYS
from schemas.values import replace

UNCERTAIN = frozenset({"timeout", "bad_output"})
"""Errors after which a tool that changes something may have done so."""


def admit(asked: Asked, offer: ToolOffer | None, *, flaw: str | None, now: datetime) -> Intent | ToolOutcome:
    """The intent to run a request that never ran, or why not. `flaw`: what is wrong with its arguments by the command's
    schema."""
    command = _command(asked, offer)
    if offer is None or command is None or offer.route != asked.route or asked.route in subjects.OUR_OWN_ROUTES:
        return failed("not_allowed", _why_not_allowed(asked, offer), retryable=False)
    if flaw := flaw or _flaw(asked, command):
        return failed("invalid_arguments", f"arguments of {offer.name} {command.name}: {flaw}", retryable=False)
    if (deadline := asked.request.deadline_at) and now >= deadline:
        expired = f"its deadline {deadline:%Y-%m-%dT%H:%M:%SZ} had passed: it was not run"
        return failed("expired", expired, retryable=True)
    ends_at = now + timedelta(seconds=offer.timeout_s)
    may_repeat = command.tier == "read" or command.idempotent
    deadline_at = min(ends_at, asked.request.deadline_at or ends_at)
    return Intent(asked=asked, may_repeat=may_repeat, deadline_at=deadline_at)


UNWANTED = failed("expired", "its run had ended meanwhile: it was not run", retryable=False)


def having_waited(outcome: ToolOutcome, why: str | None) -> ToolOutcome:
    if outcome.error_class != "expired" or not why:
        return outcome
    return replace(outcome, message=f"{outcome.message}. It has waited: {why}")


def after_resume(verdict: Verdict, intent: Intent) -> ToolOutcome | None:
    """None where the start that was looked for has done nothing that matters: admit the call anew."""
    if isinstance(verdict, NeverStarted) or (isinstance(verdict, Unknown) and intent.may_repeat):
        return None
    return after_run(verdict, intent)


def after_run(verdict: Verdict, intent: Intent) -> ToolOutcome:
    match verdict:
        case NeverStarted():
            return failed("transient", "the tool could not be started: it was not run", retryable=True)
        case Unknown(reason, jobs):
            return failed("transient", reason, retryable=True) if intent.may_repeat else in_doubt(intent, reason, jobs)
        case ToolOutcome() if intent.may_repeat:
            return verdict
        case ToolOutcome(error_class=error_class, message=message, job=job) if error_class in UNCERTAIN:
            return replace(in_doubt(intent, message or "it ended in an error", job.ids), job=job)
    return verdict


def after_reruns(outcome: ToolOutcome, intent: Intent, *, escalates: bool) -> ToolOutcome:
    """What follows for a call that Ductile itself has run more than once: of a write that is told, or left in doubt."""
    job = outcome.job
    if intent.may_repeat or not job.was_rerun or outcome.error_class == "in_doubt":
        return outcome
    told = f"Ductile ran it {job.attempts} times: it was killed meanwhile, or the plugin failed and asked for it"
    if escalates:
        return replace(in_doubt(intent, told, job.ids), job=job)
    if outcome.status == "error":
        return replace(outcome, message=f"{outcome.message} [{told}]")
    return replace(outcome, text=f"{outcome.text}\n[{told}. What it changes may have been changed as often]")


def in_doubt(intent: Intent, reason: str, jobs: Sequence[str] = ()) -> ToolOutcome:
    request = intent.asked.request
    message = (
        f"It is not known whether {request.tool} {request.tool_command} has done its work: {reason}. {_named(jobs)}"
        f"Look at what it changes before repeating it; its call is {intent.asked.key}"
    )
    doubtful = failed("in_doubt", message, retryable=False)
    return replace(doubtful, job=JobFacts(jobs[0])) if len(jobs) == 1 else doubtful


def _named(jobs: Sequence[str]) -> str:
    if not jobs:
        return ""
    which = f"It may be job {jobs[0]}" if len(jobs) == 1 else f"It may be one of the jobs {', '.join(jobs)}"
    return f"{which} of Ductile, which tells its outcome. "


def _command(asked: Asked, offer: ToolOffer | None) -> ToolCommand | None:
    commands = offer.commands if offer else ()
    return next((command for command in commands if command.name == asked.request.tool_command), None)


def _why_not_allowed(asked: Asked, offer: ToolOffer | None) -> str:
    request = asked.request
    if asked.route in subjects.OUR_OWN_ROUTES:
        return f"route {asked.route} would start an agent from an agent"
    if offer is None:
        return f"tool {request.tool} is not on offer"
    if offer.route != asked.route:
        return f"tool {request.tool} was asked for on route {asked.route}, and is served by {offer.route}"
    return f"tool {request.tool} has no command {request.tool_command} on offer"


def _flaw(asked: Asked, command: ToolCommand) -> str | None:
    payload = asked.request.tool_payload
    for name in payload:
        if unicodedata.normalize("NFKC", name).strip().casefold() in RESERVED_KEYS:
            return f"{name[:64]!r} is a reserved name"
    for name, path in artifact_arguments(command, payload).items():
        if name_in(path) is None:
            return f"{name} must name an artifact of this run, such as artifacts/fetch-01.html"
    return None
