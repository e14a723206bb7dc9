"""The table of operations of the agent, over HTTP and on the bus.

HTTP routes, the micro service, OpenAPI and the permissions of roles are built from it; the client looks operations up
here. docs/API.md repeats the table, and a test compares them. The agent serves an operation by the method of its name,
in a class that `serving.py` registers.
"""

from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`does` describes it in a few words. Without `path` it is on the bus only, without `endpoint` over HTTP only.

    `scope` None needs no token. `status`: that of its HTTP answer; 202 if the work goes on. `errors`: HTTP statuses
    beyond those that follow from its request. `listed`: API documents have it.
    """

    name: str
    does: str
    tag: Tag = "service"
    scope: Scope | None = "read"
    method: Literal["GET", "POST"] = "GET"
    path: str = ""
    endpoint: str = ""
    roles: tuple[Asker, ...] = ()
    status: int = 200
    errors: tuple[int, ...] = ()
    listed: bool = True

    @property
    def subject(self) -> str:
        return f"{subjects.SERVICE_AGENT}.{self.endpoint}"

    @property
    def shows_runs(self) -> bool:
        """True if its answer must be as new as the shared log."""
        return (self.method == "GET" and self.path.startswith(SHOWS_RUNS)) or self.subject == subjects.RUN_STANDING


def _look(name: str, path: str, does: str, tag: Tag = "runs", *, errors: tuple[int, ...] = ()) -> Operation:
    return Operation(name=name, path=path, does=does, tag=tag, errors=errors)


def _say(name: str, part: str, does: str, endpoint: str = "", roles: tuple[Asker, ...] = ()) -> Operation:
    return Operation(
        name=name,
        method="POST",
        path=f"{RUN}/{part}",
        does=does,
        tag="people",
        scope="control",
        endpoint=endpoint,
        roles=roles,
        status=202,
    )


def _operate(
    name: str, path: str, does: str, endpoint: str = "", *, tag: Tag = "operation", status: int = 202
) -> Operation:
    return Operation(
        name=name, method="POST", path=path, does=does, tag=tag, scope="operate", endpoint=endpoint, status=status
    )


OPERATIONS = (
    Operation(
        name="wake",
        method="POST",
        path="/v1/wake",
        does="asks for a run",
        tag="runs",
        scope="wake",
        endpoint="wake",
        roles=("publisher",),
        status=202,
        errors=(409,),
    ),
    _look("list_runs", "/v1/runs", "lists runs, newest first"),
    _look("count_runs", "/v1/counts", "how many there are of each status"),
    _look("show_usage", "/v1/usage", "runs, failures, tools, models and cost by day"),
    Operation(
        name="show_run",
        path=RUN,
        does="where a run stands",
        tag="runs",
        endpoint="status",
        roles=("publisher", "approver", "observer"),
    ),
    _look("follow_run", f"{RUN}/events", "its entries as they come"),
    _look("list_entries", f"{RUN}/entries", "its journal, in pages: `after`, `limit`"),
    _look("list_files", f"{RUN}/workspace", "its files, with sizes and hashes"),
    _look(
        "download_file",
        f"{RUN}/workspace/{{path}}",
        "one of them; an artifact as soon as the journal names it",
        errors=(409,),
    ),
    _look("follow_all", "/v1/events", "the entries of all runs as they come"),
    _say("cancel_run", "cancel", "ends it now", "cancel"),
    _say("rule_on_run", "approvals", "approves or rejects what it asks for", "approve", ("approver",)),
    _say("answer_run", "answers", "answers its question or its escalation", "answer", ("approver",)),
    _say(
        "signal_run",
        "signals",
        "says anything to it: `message`, `answer`, `approve`, `reject`, `resume`, `raise_budget`",
        "signal",
    ),
    _say("dismiss_run", "dismiss", "takes an escalated run out of the inbox"),
    _look("show_inbox", "/v1/inbox", "what waits for a person", "people"),
    _look("show_timeline", f"{RUN}/timeline", "what it did, from when until when", "insight"),
    _look("show_step", f"{RUN}/steps/{{step}}", "one step in full", "insight"),
    _look("show_call", f"{RUN}/calls/{{call}}", "what the model was told, and said", "insight"),
    _look("show_why", f"{RUN}/why", "why it stands where it stands, and what to do", "insight"),
    _look("list_letters", "/v1/dead-letters", "messages that could not be handled", "dead letters", errors=(503,)),
    _operate("retry_letter", f"{LETTER}/retry", "sends one again", tag="dead letters"),
    _operate("discard_letter", f"{LETTER}/discard", "takes one away", tag="dead letters"),
    _look("list_tools", "/v1/tools", "what runs may use now, with the schema of each command", "operation"),
    _look("show_health", "/v1/health", "how the agent and all that it needs are", "operation"),
    _operate("stop_all", "/v1/stop-all", "stops everything", "stop-all"),
    _operate("go_on", "/v1/go-on", "lets it go on", "go-on"),
    _look("show_drain", "/v1/drain", "what a process that ends still has in hand", "operation"),
    _operate("drain", "/v1/drain", "ends this agent gracefully"),
    _operate("prune", "/v1/prune", "deletes expired runs; `dry_run` only says which", status=200),
    _look("whoami", "/v1/whoami", "who you are to this agent, and which it is", "service"),
    Operation(name="healthz", path="/healthz", does="it lives", scope=None),
    Operation(name="readyz", path="/readyz", does="it can work (200), or what is wrong (503)", scope=None),
    _look("metrics", "/metrics", "what is counted, for Prometheus", "service"),
    Operation(name="openapi", path="/openapi.json", does="this document", listed=False),
    Operation(name="docs", path="/docs", does="the same for people", listed=False),
    Operation(name="llms", path="/llms.txt", does="how agents operate it", listed=False),
    Operation(name="standing", endpoint="standing", does="the run's status alone", roles=("gateway",)),
    Operation(name="callback", endpoint="callback", does="where its ending is to be sent", roles=("gateway",)),
    Operation(name="keys", endpoint="keys", does="the public keys of the agent's events", roles=("gateway",)),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def endpoint_subjects(role: Asker, operations: Iterable[Operation] = OPERATIONS) -> tuple[str, ...]:
    """Subjects of the endpoints that a role may ask."""
    return tuple(operation.subject for operation in operations if role in operation.roles)
