"""Every subject, stream, durable and bucket name: the only strings of their kind.

A subject token made from a name (a route) must match NAME first: an over-long or wildcard subject is an attack.
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
"""Tool requests. The agent can publish them again from its journal, so that they pay for no fsync."""
STREAM_PROGRESS = "AGENTIC_PROGRESS"
"""What can be published again from the journal, so that it pays for no fsync: progress and acceptance."""
STREAM_DEAD_LETTERS = "AGENTIC_DLQ"
"""Dead letters, what was done about them, and `agent.rejected`, which says of each that it is one."""

STREAM_RUNS = "AGENTIC_RUNS"
"""What agents commit, where several share a store: the journals of all runs, in the one order that counts."""
STREAM_LEDGER = "AGENTIC_LEDGER"
STREAM_TURNS = "AGENTIC_TURNS"
"""Turns of runs that no other message drives, where several agents share a store: begins, timers, words by HTTP."""
STORE = "agentic-store"
LEDGER = "agentic-ledger"
TURN = "agentic-turn"
STORED_HALT = f"{STORE}.halt"
STORED_RUNS = f"{STORE}.run.>"
STORED_MOVED = f"{STORE}.moved"

DURABLE_STARTS = "starts"
"""The agent's consumer of starts: apart, so that starts delay nothing of the runs under way."""
DURABLE_LOOP = "loop"
"""The agent's consumer of tool results: a turn may hold a message for as long as a model call takes."""
DURABLE_CONTROL = "control"
"""The agent's consumer of cancels and signals: apart from the loop, so that no slow turn delays a cancel."""
DURABLE_CHILDREN = "children"
"""The agent's consumer of tool requests that it carries out itself: runs that are steps of runs."""
DURABLE_TURNS = "turns"
DURABLE_TOOLS = "tools"
DURABLE_LIFECYCLE = "lifecycle"
"""The gateway's consumer of endings, which it passes on to Ductile, to callbacks and to subscribers."""
DURABLE_PROGRESS = "progress"

ARTIFACT_BUCKET = "agentic-artifacts"
LEASE_BUCKET = "agentic-leases"
LEASE_AGENT = "agent"
"""With the id of a store behind it (`agent.store_…`): one of several agents, each with a lease of its own."""
LEASE_GATEWAY = "gateway"
IN_FLIGHT = "in-flight"
"""With the name of a tool behind it, in the same bucket: whose calls of it are under way, over all gateways."""
HALT_KEY = "halt"
LIMIT = "limit"
"""With the digest of a limit's name behind it: what agents that share a store have just taken of it."""

SERVICE_AGENT = "agentic-loop"
REQUESTS_FOR_CHILDREN = f"{TOOL_REQUEST}.{SERVICE_AGENT}"
RUN_STANDING = f"{SERVICE_AGENT}.standing"
"""Request and reply: `{run_id}`, and its status alone, without a look into its journal. For the gateway alone."""
RUN_CALLBACK = f"{SERVICE_AGENT}.callback"
"""Request and reply: `{run_id}`, and where that run asked to have its ending sent. For the gateway alone."""
AGENT_KEYS = f"{SERVICE_AGENT}.keys"
"""Request and reply: the public keys by which events of the agent are known to be its own (`schemas.signing`)."""
SERVICE_GATEWAY = "ductile-gateway"
CATALOG = "ductile-gateway.catalog"
STATUS = "ductile-gateway.status"
"""Request and reply: what the gateway finds when it looks at itself, and at the Ductile behind it."""
CALLBACK = "ductile-gateway.callback"
"""Request and reply: `{url}`, and `{flaw}`: why the gateway would never send to that callback, or empty."""
PRUNE = "ductile-gateway.prune"
"""Request and reply: `{dry_run}`, and what the gateway keeps no longer, which goes unless it is a dry run."""

STREAMS: dict[str, tuple[str, ...]] = {
    STREAM: (CANCEL, SIGNAL, *LIFECYCLE),
    STREAM_STARTS: (START,),
    STREAM_RESULTS: (TOOL_RESULT,),
    STREAM_REQUESTS: (ALL_TOOL_REQUESTS,),
    STREAM_PROGRESS: (WAKE_ACCEPTED, PROGRESS),
    STREAM_DEAD_LETTERS: (ALL_DEAD_LETTERS, REJECTED),
}
"""The streams of messages, and what is said there."""
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
"""Each consumer with its stream, and what it takes of it."""
SHARED_CONSUMERS = {DURABLE_TURNS: (STREAM_TURNS, (TURN,))}
"""Of agents that share a store."""

NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")

WAKE_ROUTE = "agentic-wake"
OUR_OWN_ROUTES = frozenset({"agentic-loop", WAKE_ROUTE, "agentic-run", "ductile-gateway"})
"""Routes that would make an agent call itself (RFC-103: no recursive agents), or speak to runs as people do."""


def tool_request(route: str) -> str:
    """The subject that carries requests for `route`. Raises ValueError when the name is not a legal token."""
    if not NAME.fullmatch(route):
        raise ValueError(f"route {route[:80]!r} is not a legal name ({NAME.pattern})")
    return f"{TOOL_REQUEST}.{route}"


def requests_of(executor: str) -> str:
    return f"{executor}.requests"


def stored_wake(wake_id: str) -> str:
    """The pattern of the one run that a wake has, whatever its id is made of."""
    return f"{STORE}.run.{hashlib.sha256(wake_id.encode()).hexdigest()[:32]}.*"


def stored_run(wake_id: str, run_id: str) -> str:
    return f"{stored_wake(wake_id)[:-1]}{run_id}"


def stored_under_any_wake(run_id: str) -> str:
    return f"{STORE}.run.*.{run_id}"


def stored_seen(run_id: str) -> str:
    return f"{STORE}.seen.{run_id}"


def stored_gone(run_id: str) -> str:
    return f"{STORE}.gone.{run_id}"


def stored_bare(run_id: str) -> str:
    """Of a run whose artifacts are kept no longer."""
    return f"{STORE}.bare.{run_id}"


def lease_key(role: str, holder: str) -> str:
    return f"{role}.{holder}"
