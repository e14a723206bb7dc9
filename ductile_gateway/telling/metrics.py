"""Metrics of the gateway: few series, none named by a run, a call or a text. See docs/OPERATIONS.md."""

from collections.abc import Callable, Mapping, Sequence

from ductile_gateway.calls.call import Asked, ToolOutcome
from ductile_gateway.ductile.discovery import DuctileHealth
from ductile_gateway.ductile.starts import Sent
from groundwork.nats.link import NatsLink
from groundwork.sqlite.group_commit import StoreMetrics
from groundwork.telemetry.metrics import Attributes, Instruments

CALL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
TOOL, OUTCOME, ERROR = "gen_ai.tool.name", "agentic.outcome", "error.type"
NONE = ""
"""No error: Prometheus takes a label without text for one that is not there."""
_OUTCOMES = {NONE: "ok", "not_allowed": "denied", "timeout": "timeout", "expired": "timeout"}


class GatewayMetrics:
    def __init__(self) -> None:
        made = self.instruments = Instruments()
        self.store = StoreMetrics(made)
        self.retries = made.counter(
            "agentic.retries",
            "What is done again: calls put off, requests to Ductile that were not sent or lost, publishing",
            unit="{retry}",
            attributes=("agentic.retry.scope", ERROR),
            known=[("call", "try_again"), ("ductile", "not_sent"), ("ductile", "lost"), ("publish", "try_again")],
        )
        self.dedupe = made.counter(
            "agentic.dedupe.hits",
            "What came again and changed nothing",
            unit="{hit}",
            attributes=("agentic.dedupe.kind",),
            known=[("request",), ("publish",)],
        )
        self._taken = made.counter(
            "agentic.ids.taken_by_others", "Message ids of ours that somebody else's message had"
        )
        self._calls = made.histogram(
            "agentic.gateway.call.duration",
            "A call, from the start of its tool to its durable answer; 0 of one whose tool was not started",
            attributes=(TOOL, OUTCOME, ERROR),
            bounds=CALL_SECONDS,
        )
        self.waits = made.histogram(
            "agentic.gateway.call.wait",
            "From the agent's request to the start of the tool: on the bus, for a place, for a Ductile that is away",
            attributes=(TOOL,),
            bounds=CALL_SECONDS,
        )
        self._sent = made.histogram(
            "agentic.ductile.request.duration", "A request to Ductile that was to start a call", attributes=(OUTCOME,)
        )
        self._reruns = made.counter(
            "agentic.ductile.job.reruns", "How often Ductile itself ran a job again", unit="{run}"
        )
        self.deliveries = made.counter(
            "agentic.outbound.deliveries",
            "Tries to tell others of runs: arrived, unheard (no listener in Ductile), put_off, dead",
            unit="{try}",
            attributes=("agentic.target", OUTCOME),
            known=[(target, "dead") for target in ("relay", "callback")],
        )
        self.refused = made.counter(
            "agentic.gateway.refused",
            "Messages that claim to be the agent's, and are not signed by it",
            unit="{message}",
        )
        self.received = made.counter(
            "agentic.ingress.events",
            "Events from outside: accepted, ignored, refused, put_off",
            unit="{event}",
            attributes=("agentic.ingress", OUTCOME),
        )

    def answered(self, asked: Asked, outcome: ToolOutcome, took_s: float) -> None:
        error = outcome.error_class or "tool_error" if outcome.status == "error" else NONE
        told = outcome.status if outcome.status == "continuation" else _OUTCOMES.get(error, "error")
        self._calls.record(took_s, asked.request.tool, told, error)
        if outcome.job.job_id and outcome.job.attempts:
            self._reruns.add(by=outcome.job.attempts - 1)

    def sent(self, sent: Sent) -> None:
        self._sent.record((sent.ended_at - sent.began_at).total_seconds(), sent.fate)
        if sent.fate in ("not_sent", "lost"):
            self.retries.add("ductile", sent.fate)

    def listen_to(self, link: NatsLink) -> None:
        link.id_was_taken = self._taken.add
        link.was_there = lambda: self.dedupe.add("publish")
        link.tries_again = lambda: self.retries.add("publish", "try_again")

    def observe_gateway(self, wrong: Callable[[], Mapping[str, str]], outbox: Callable[[], int]) -> None:
        """`wrong`: what the gateway needs, by its name, as /readyz says it. `outbox`: how many deliveries wait."""

        def ready() -> Mapping[Attributes, float]:
            return {(name,): float(not why) for name, why in wrong().items()}

        text = "1 for each thing that is needed and works, else 0"
        self.instruments.level("agentic.ready", text, ready, attributes=("agentic.check",))
        self.instruments.level("agentic.outbound.waiting", "Deliveries to others that wait", outbox, unit="{event}")

    def observe_ductiles(self, healths: Mapping[str, DuctileHealth]) -> None:
        which = ("agentic.ductile.name",) if any(healths) else ()

        def each(read: Callable[[DuctileHealth], float | None]) -> Callable[[], Mapping[Attributes, float]]:
            def readings() -> Mapping[Attributes, float]:
                read_of = {(name,) if which else (): read(health) for name, health in healths.items()}
                return {series: reading for series, reading in read_of.items() if reading is not None}

            return readings

        up, queue = each(lambda health: not health.trouble), each(lambda health: health.queue)
        self.instruments.level("agentic.ductile.up", "1 while Ductile answers, else 0", up, attributes=which)
        text = "Jobs waiting or running in Ductile, of any client"
        self.instruments.level("agentic.ductile.queue", text, queue, unit="{job}", attributes=which)

    def observe_calls(
        self, in_hand: Callable[[], int], waiting: Callable[[], Sequence[object]], open_intents: Callable[[], int]
    ) -> None:
        """`open_intents`: calls that the ledger has begun and not answered."""
        for name, text, read in (
            ("agentic.gateway.calls.in_hand", "Requests in hand", in_hand),
            ("agentic.gateway.calls.waiting", "Calls that are put off for some time", lambda: len(waiting())),
            ("agentic.ledger.open", "Calls that were begun and are not answered", open_intents),
        ):
            self.instruments.level(name, text, read, unit="{call}")
