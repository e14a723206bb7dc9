"""All subjects, streams, durables and buckets by name.

A name (a route) must match NAME before it becomes a subject token: an over-long or wildcard subject is an attack.
"""

import hashlib
import re

START = "agentic.start"
TOOL_REQUEST = "agentic.tool_request"
TOOL_RESULT = "agentic.tool_result"
CANCEL = "agentic.cancel"
SIGNAL = "agentic.signal"
WAKE_ACCEPTED = "agent.wake.accepted"
PROGRESS = "agent.progress"
COMPLETED = "agent.completed"
ESCALATED = "agent.escalated"
FAILED = "agent.failed"
CANCELLED = "agent.cancelled"
WAITING = "agent.waiting"
REOPENED = "agent.reopened"
REJECTED = "agent.rejected"

ENDINGS = (COMPLETED, ESCALATED, FAILED, CANCELLED)
LIFECYCLE = (*ENDINGS, WAITING, REOPENED)
RUN_EVENTS = (WAKE_ACCEPTED, PROGRESS, *LIFECYCLE)

EVENTS = "agent."
LOG = "log"

ALL_TOOL_REQUESTS = "agentic.tool_request.*"
DEAD_LETTERS_LOOP = "agentic.dlq.loop"
DEAD_LETTERS_CONTROL = "agentic.dlq.control"
DEAD_LETTERS_TOOLS = "agentic.dlq.tools"
DEAD_LETTERS_OUTBOUND = "agentic.dlq.outbound"
SETTLED = "agentic.dlq.settled"
ALL_DEAD_LETTERS = "agentic.dlq.>"

STREAM = "AGENTIC"
STREAM_STARTS = "AGENTIC_STARTS"
STREAM_RESULTS = "AGENTIC_RESULTS"
STREAM_REQUESTS = "AGENTIC_REQUESTS"
"""Tool requests. Not synced per message: the agent can publish them again from its journal."""
STREAM_PROGRESS = "AGENTIC_PROGRESS"
"""Progress and acceptance. Not synced per message, for the same reason."""
STREAM_DEAD_LETTERS = "AGENTIC_DLQ"
"""Dead letters, their settlements, and the `agent.rejected` of each."""

STREAM_RUNS = "AGENTIC_RUNS"
"""Commits of agents that share a store: the journals of all runs, in order."""
STREAM_LEDGER = "AGENTIC_LEDGER"
STREAM_TURNS = "AGENTIC_TURNS"
"""Turns without a message of their own, of agents that share a store: starts, timers, signals over HTTP."""
STORE = "agentic-store"
LEDGER = "agentic-ledger"
TURN = "agentic-turn"
STORED_RUNS = f"{STORE}.run.>"
STORED_MOVED = f"{STORE}.moved"

DURABLE_STARTS = "starts"
"""The agent's consumer of starts: separate, so that starts delay no open run."""
DURABLE_LOOP = "loop"
"""The agent's consumer of tool results: a turn holds its message during a model call."""
DURABLE_CONTROL = "control"
"""The agent's consumer of cancels and signals: separate, so that no slow turn delays a cancel."""
DURABLE_CHILDREN = "children"
"""The agent's consumer of tool requests for children."""
DURABLE_TURNS = "turns"
DURABLE_TOOLS = "tools"
DURABLE_LIFECYCLE = "lifecycle"
"""The gateway's consumer of endings, which it relays to Ductile, callbacks and subscribers."""
DURABLE_PROGRESS = "progress"

ARTIFACT_BUCKET = "agentic-artifacts"
LEASE_BUCKET = "agentic-leases"
LEASE_AGENT = "agent"
"""Key of the agent's lease; with the id of a store (`agent.store_…`), that of one of several agents."""
LEASE_GATEWAY = "gateway"
IN_FLIGHT = "in-flight"
"""Key prefix in the same bucket: a tool's calls in flight, over all gateways."""
HALT_KEY = "halt"
LIMIT = "limit"
"""Key prefix in the same bucket: recent use of a limit (by the digest of its name) by agents that share a store."""

SERVICE_AGENT = "agentic-loop"
REQUESTS_FOR_CHILDREN = f"{TOOL_REQUEST}.{SERVICE_AGENT}"
RUN_STANDING = f"{SERVICE_AGENT}.standing"
"""Request and reply for the gateway: `{run_id}`, and the run's status, without a look into its journal."""
EACH = "-each"
"""End of the subject of a question that every agent answers. Of a queue group a server prefers members that are
connected to itself, so repeated questions may meet one that is cut off."""
RUN_CALLBACK = f"{SERVICE_AGENT}.callback"
"""Request and reply for the gateway: `{run_id}`, and the callback of the run's ending."""
AGENT_KEYS = f"{SERVICE_AGENT}.keys"
"""Request and reply: the public keys of the agent's events (`schemas.signing`)."""
SERVICE_GATEWAY = "ductile-gateway"
CATALOG = "ductile-gateway.catalog"
STATUS = "ductile-gateway.status"
"""Request and reply: the gateway's findings about itself and its Ductile."""
CALLBACK = "ductile-gateway.callback"
"""Request and reply: `{url}`, and `{flaw}`: the reason why the gateway never sends to that callback, or empty."""
PRUNE = "ductile-gateway.prune"
"""Request and reply: `{dry_run}`, and the expired data, which is deleted unless it is a dry run."""

STREAMS: dict[str, tuple[str, ...]] = {
    STREAM: (CANCEL, SIGNAL, *LIFECYCLE),
    STREAM_STARTS: (START,),
    STREAM_RESULTS: (TOOL_RESULT,),
    STREAM_REQUESTS: (ALL_TOOL_REQUESTS,),
    STREAM_PROGRESS: (WAKE_ACCEPTED, PROGRESS),
    STREAM_DEAD_LETTERS: (ALL_DEAD_LETTERS, REJECTED),
}
"""Streams of messages, and their subjects."""
AGENT_CONSUMERS: dict[str, tuple[str, tuple[str, ...]]] = {
    DURABLE_STARTS: (STREAM_STARTS, (START,)),
    DURABLE_LOOP: (STREAM_RESULTS, (TOOL_RESULT,)),
    DURABLE_CONTROL: (STREAM, (CANCEL, SIGNAL)),
    DURABLE_CHILDREN: (STREAM_REQUESTS, (REQUESTS_FOR_CHILDREN,)),
}
GATEWAY_CONSUMERS: dict[str, tuple[str, tuple[str, ...]]] = {
    DURABLE_TOOLS: (STREAM_REQUESTS, (ALL_TOOL_REQUESTS,)),
    DURABLE_LIFECYCLE: (STREAM, LIFECYCLE),
    DURABLE_PROGRESS: (STREAM_PROGRESS, (PROGRESS,)),
}
CONSUMERS = AGENT_CONSUMERS | GATEWAY_CONSUMERS
"""Consumers with their stream and filter subjects."""
SHARED_CONSUMERS = {DURABLE_TURNS: (STREAM_TURNS, (TURN,))}
"""Consumers of agents that share a store."""

NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")
NAME_FORM = "a name of 1 to 64 lower-case letters, digits, `-` or `_`, beginning with a letter or digit"

WAKE_ROUTE = "agentic-wake"
OUR_OWN_ROUTES = frozenset({"agentic-loop", WAKE_ROUTE, "agentic-run", "ductile-gateway"})
"""Routes by which an agent would call itself (RFC-103: no recursive agents), or signal runs like a person."""


def tool_request(route: str) -> str:
    """The subject of requests for `route`. Raises ValueError if the name is not a legal token."""
    if not NAME.fullmatch(route):
        raise ValueError(f"route {route[:80]!r} is not {NAME_FORM}")
    return f"{TOOL_REQUEST}.{route}"


def requests_of(executor: str) -> str:
    return f"{executor}.requests"


def stored_wake(wake_id: str) -> str:
    """Pattern of the one run of a wake."""
    return f"{STORE}.run.{hashlib.sha256(wake_id.encode()).hexdigest()[:32]}.*"


def stored_run(wake_id: str, run_id: str) -> str:
    return f"{stored_wake(wake_id)[:-1]}{run_id}"


def stored_under_any_wake(run_id: str) -> str:
    return f"{STORE}.run.*.{run_id}"


def stored_beside(kind: str, run_id: str) -> str:
    """Subject of a record beside the journals: `halt`; `seen`, `gone` and `bare` (of artifacts) of a run."""
    return f"{STORE}.{kind}.{run_id}" if run_id else f"{STORE}.{kind}"


def lease_key(role: str, holder: str) -> str:
    return f"{role}.{holder}"
