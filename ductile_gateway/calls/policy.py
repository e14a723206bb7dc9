"""The rules of calls: the offers, the admission of a request, and the outcome of a call whose end was not seen. Pure.

Everything that the agent checked is checked again. Refusals that another plan can avoid are `invalid_arguments` or
`not_found`; `not_allowed` is for a person. A write with an unknown outcome is in doubt: it is never run again.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ductile_gateway.calls.artifacts import artifact_name
from ductile_gateway.calls.call import (
    CallRequest,
    JobFacts,
    NeverStarted,
    ToolCall,
    ToolOutcome,
    Unknown,
    Verdict,
    failed,
)
from schemas import subjects
from schemas.argument_schemas import argument_flaws, validator_of
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.events import GIVEN_KEYS, RESERVED_KEYS, ToolRequest
from schemas.values import dataclass, replace

UNKEPT = "bad_output"
UNCERTAIN = frozenset({"timeout", UNKEPT})
"""Errors after which a write may have done its work."""
MOST_FLAWS = 3


def reads_form(offer: ToolOffer | None) -> bool:
    return offer is not None and offer.continues and offer.output == "trusted"


@dataclass(eq=False)
class OfferedCommand:
    """A command on offer, with what follows from it for every call. `given`: names that the agent adds to the arguments
    of a sub-request, and its schema does not know. `artifacts`: arguments that are paths of artifacts."""

    offer: ToolOffer
    command: ToolCommand

    def __post_init__(self) -> None:
        schema = self.command.input_schema
        known = schema.get("properties")
        properties = known if isinstance(known, dict) else {}
        self.validator = validator_of(schema) if schema else None
        self.given = GIVEN_KEYS - properties.keys()
        schemas = ((name, one) for name, one in properties.items() if isinstance(one, dict))
        self.artifacts = tuple(name for name, one in schemas if one.get("format") == "artifact")
        self.may_repeat = self.command.tier == "read" or self.command.idempotent

    def flaw(self, request: ToolRequest) -> str | None:
        checked = payload = request.tool_payload
        if request.task:
            checked = {name: value for name, value in payload.items() if name not in self.given}
        if self.validator and not self.validator.is_valid(checked):
            return "; ".join(argument_flaws(self.validator, checked, most=MOST_FLAWS))
        for name in payload:
            if unicodedata.normalize("NFKC", name).strip().casefold() in RESERVED_KEYS:
                return f"{name[:64]!r} is a reserved name"
        for name in self.artifacts:
            if payload.get(name) is not None and artifact_name(payload[name]) is None:
                return f"{name} must name an artifact of this run, such as artifacts/fetch-01.html"
        return None


class Offers:
    """The replaceable catalog of `executor`. `problems`: reasons why tools are not on offer. `awaited`: errors of
    Ductiles that have not answered yet, by the routes of their tools."""

    def __init__(self, *, executor: str = subjects.SERVICE_GATEWAY) -> None:
        self._executor = executor
        self.replace(Catalog(revision="", tools=()))

    def replace(self, catalog: Catalog, problems: tuple[str, ...] = (), *, awaited: Mapping[str, str] = {}) -> None:
        self._commands = {
            (offer.name, command.name): OfferedCommand(offer, command)
            for offer in catalog.tools
            for command in offer.commands
        }
        self._by_name = {offer.name: offer for offer in catalog.tools}
        self.awaited = awaited
        known = frozenset(offer.route for offer in catalog.tools)
        self._routes = known | awaited.keys()
        self.catalog = catalog.model_copy(update={"executor": self._executor})
        self.problems = problems

    def serves(self, route: str) -> bool:
        return route in self._routes

    def is_ours(self, asked: CallRequest) -> bool:
        executor = asked.request.executor
        return self.serves(asked.route) if executor is None else executor == self._executor

    def find(self, name: str) -> ToolOffer | None:
        return self._by_name.get(name)

    def command(self, tool: str, name: str) -> OfferedCommand | None:
        return self._commands.get((tool, name))

    def admit(self, asked: CallRequest, *, now: datetime, again: bool = False) -> ToolCall | ToolOutcome:
        """The call of a request, or the refusal. `again`: it may have run before."""
        request = asked.request
        offered = self.command(request.tool, request.tool_command)
        if offered is None or offered.offer.route != asked.route:
            why = f"{request.tool} {request.tool_command} is not on offer on route {asked.route}"
            return failed("not_allowed", why, retryable=False)
        if flaw := offered.flaw(request):
            why = f"arguments of {request.tool} {request.tool_command}: {flaw}"
            return failed("invalid_arguments", why, retryable=False)
        if (deadline := request.deadline_at) and now >= deadline:
            expired = f"its deadline {deadline:%Y-%m-%dT%H:%M:%SZ} had passed: it was not run{' again' * again}"
            return failed("expired", expired, retryable=True)
        ends_at = now + timedelta(seconds=offered.offer.timeout_s)
        return ToolCall(
            asked=asked,
            deadline_at=min(ends_at, deadline or ends_at),
            payload=request.tool_payload,
            artifacts=offered.artifacts,
            may_repeat=offered.may_repeat,
        )


UNWANTED = failed("expired", "its run had ended meanwhile: it was not run", retryable=False)


def after_run(verdict: Verdict, call: ToolCall, *, escalates: bool = False) -> ToolOutcome:
    """The outcome for the agent. `escalates`: a write that Ductile has run more than once is in doubt; else the outcome
    says so."""
    match verdict:
        case NeverStarted():
            return failed("transient", "the tool could not be started: it was not run", retryable=True)
        case Unknown(reason, jobs):
            if call.may_repeat:
                return failed("transient", reason, retryable=True)
            return in_doubt(call.asked, reason, jobs)
        case ToolOutcome() if call.may_repeat:
            return verdict
        case ToolOutcome(error_class=error_class, message=message, job=job) if error_class in UNCERTAIN:
            return in_doubt(call.asked, message or "it ended in an error", job=job)
    return _after_reruns(verdict, call, escalates=escalates) if verdict.job.was_rerun else verdict


def _after_reruns(outcome: ToolOutcome, call: ToolCall, *, escalates: bool) -> ToolOutcome:
    job = outcome.job
    reruns = f"Ductile ran it {job.attempts} times: it was killed meanwhile, or the plugin failed and asked for it"
    if escalates:
        return in_doubt(call.asked, reruns, job=job)
    if outcome.status == "error":
        return replace(outcome, message=f"{outcome.message} [{reruns}]")
    return replace(outcome, text=f"{outcome.text}\n[{reruns}. What it changes may have been changed as often]")


def in_doubt(asked: CallRequest, reason: str, jobs: Sequence[str] = (), job: JobFacts | None = None) -> ToolOutcome:
    """`jobs`: those that may be the call's. `job`: the one that is."""
    request = asked.request
    jobs = (job.job_id,) if job and job.job_id else jobs
    which = f"job {jobs[0]}" if len(jobs) == 1 else f"one of the jobs {', '.join(jobs)}"
    named = f"It may be {which} of Ductile, which tells its outcome. " if jobs else ""
    message = (
        f"It is not known whether {request.tool} {request.tool_command} has done its work: {reason}. {named}"
        f"Look at what it changes before repeating it; its call is {asked.key}"
    )
    facts = job or JobFacts(jobs[0] if len(jobs) == 1 else None)
    return replace(failed("in_doubt", message, retryable=False), job=facts)
