"""The table of operations of the agent, over HTTP and on the bus.

HTTP routes, the micro service, OpenAPI and the permissions of roles are built from it; the client looks operations up
here. docs/API.md repeats the table, and a test compares them. The agent serves an operation by the method of its name,
in a class that `serving.py` registers.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY
from functools import partial
from typing import Literal

from schemas import subjects
from schemas.values import dataclass

Scope = Literal["wake", "read", "control", "operate"]
"""`control` changes one run, `operate` the whole agent: stop, drain, prune, dead letters."""
Asker = Literal["publisher", "approver", "observer", "gateway"]
"""Roles on the bus with permissions for single endpoints; an operator has all."""
Tag = Literal["runs", "people", "insight", "dead letters", "operation", "service"]

RUN = "/v1/runs/{run_id}"
LETTER = "/v1/dead-letters/{seq}"
SHOWS_RUNS = ("/v1/runs", "/v1/counts", "/v1/usage", "/v1/inbox", "/v1/events")


@dataclass(frozen=True, slots=True)
class Operation:
    """`does` describes it in a few words. Without `path` it is on the bus only, without `endpoint` over HTTP only.

    `scope` None needs no token. `status`: that of its HTTP answer; 202 if the work goes on. `errors`: HTTP statuses
    beyond those that follow from its request. `listed`: API documents have it.
    """

    name: str
    path: str
    does: str
    tag: Tag = "service"
    _: KW_ONLY
    scope: Scope | None = "read"
    method: Literal["GET", "POST"] = "GET"
    endpoint: str = ""
    roles: tuple[Asker, ...] = ()
    status: int = 200
    errors: tuple[int, ...] = ()
    listed: bool = True

    @property
    def subject(self) -> str:
        return f"{subjects.SERVICE_AGENT}.{self.endpoint}"

    @property
    def is_answered_by_each(self) -> bool:
        """True if it can also be asked of every agent. Only gateways ask so, and only for reading."""
        return self.roles == ("gateway",)

    @property
    def shows_runs(self) -> bool:
        """True if its answer must be as new as the shared log."""
        return (self.method == "GET" and self.path.startswith(SHOWS_RUNS)) or self.subject == subjects.RUN_STANDING


_post = partial(Operation, method="POST", status=202)
_say = partial(_post, tag="people", scope="control")
_operate = partial(_post, scope="operate")

OPERATIONS = (
    _post(
        "wake", "/v1/wake", "asks for a run", "runs", scope="wake", endpoint="wake", roles=("publisher",), errors=(409,)
    ),
    Operation("list_runs", "/v1/runs", "lists runs, newest first", "runs"),
    Operation("count_runs", "/v1/counts", "how many there are of each status", "runs"),
    Operation("show_usage", "/v1/usage", "runs, failures, tools, models and cost by day", "runs"),
    Operation(
        "show_run", RUN, "where a run stands", "runs", endpoint="status", roles=("publisher", "approver", "observer")
    ),
    Operation("follow_run", f"{RUN}/events", "its entries as they come", "runs"),
    Operation("list_entries", f"{RUN}/entries", "its journal, in pages: `after`, `limit`", "runs"),
    Operation("list_files", f"{RUN}/workspace", "its files, with sizes and hashes", "runs"),
    Operation(
        "download_file",
        f"{RUN}/workspace/{{path}}",
        "one of them; an artifact as soon as the journal names it",
        "runs",
        errors=(409,),
    ),
    Operation("follow_all", "/v1/events", "the entries of all runs as they come", "runs"),
    _say("cancel_run", f"{RUN}/cancel", "ends it now", endpoint="cancel"),
    _say(
        "rule_on_run",
        f"{RUN}/approvals",
        "approves or rejects what it asks for",
        endpoint="approve",
        roles=("approver",),
    ),
    _say(
        "answer_run", f"{RUN}/answers", "answers its question or its escalation", endpoint="answer", roles=("approver",)
    ),
    _say(
        "signal_run",
        f"{RUN}/signals",
        "says anything to it: `message`, `answer`, `approve`, `reject`, `resume`, `raise_budget`",
        endpoint="signal",
    ),
    _say("dismiss_run", f"{RUN}/dismiss", "takes an escalated run out of the inbox"),
    Operation("show_inbox", "/v1/inbox", "what waits for a person", "people"),
    Operation("show_timeline", f"{RUN}/timeline", "what it did, from when until when", "insight"),
    Operation("show_step", f"{RUN}/steps/{{step}}", "one step in full", "insight"),
    Operation("show_call", f"{RUN}/calls/{{call}}", "what the model was told, and said", "insight"),
    Operation("show_why", f"{RUN}/why", "why it stands where it stands, and what to do", "insight"),
    Operation("list_letters", "/v1/dead-letters", "messages that could not be handled", "dead letters", errors=(503,)),
    _operate("retry_letter", f"{LETTER}/retry", "sends one again", "dead letters"),
    _operate("discard_letter", f"{LETTER}/discard", "takes one away", "dead letters"),
    Operation("list_tools", "/v1/tools", "what runs may use now, with the schema of each command", "operation"),
    Operation("show_health", "/v1/health", "how the agent and all that it needs are", "operation"),
    _operate("stop_all", "/v1/stop-all", "stops everything", "operation", endpoint="stop-all"),
    _operate("go_on", "/v1/go-on", "lets it go on", "operation", endpoint="go-on"),
    Operation("show_drain", "/v1/drain", "what a process that ends still has in hand", "operation"),
    _operate("drain", "/v1/drain", "ends this agent gracefully", "operation"),
    _operate("prune", "/v1/prune", "deletes expired runs; `dry_run` only says which", "operation", status=200),
    Operation("whoami", "/v1/whoami", "who you are to this agent, and which it is"),
    Operation("healthz", "/healthz", "it lives", scope=None),
    Operation("readyz", "/readyz", "it can work (200), or what is wrong (503)", scope=None),
    Operation("metrics", "/metrics", "what is counted, for Prometheus"),
    Operation("openapi", "/openapi.json", "this document", listed=False),
    Operation("docs", "/docs", "the same for people", listed=False),
    Operation("llms", "/llms.txt", "how agents operate it", listed=False),
    Operation("standing", "", "the run's status alone", endpoint="standing", roles=("gateway",)),
    Operation("callback", "", "where its ending is to be sent", endpoint="callback", roles=("gateway",)),
    Operation("keys", "", "the public keys of the agent's events", endpoint="keys", roles=("gateway",)),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def endpoint_subjects(role: Asker, operations: Iterable[Operation] = OPERATIONS) -> tuple[str, ...]:
    """Subjects of the endpoints that a role may ask."""
    asked = [operation for operation in operations if role in operation.roles]
    each = (f"{one.subject}{subjects.EACH}" for one in asked if one.is_answered_by_each)
    return (*(one.subject for one in asked), *each)
