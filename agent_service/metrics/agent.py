"""All that the agent counts and measures, put together; who takes part gets the piece that it needs."""

from agent_service.metrics.incoming import IncomingMetrics
from agent_service.metrics.outgoing import OutgoingMetrics
from agent_service.metrics.runs import RunMetrics
from groundwork.sqlite.metrics import StoreMetrics
from groundwork.telemetry.metrics import Instruments


class AgentMetrics:
    """`provider` is who is asked for replies of the model."""

    def __init__(self, provider: str) -> None:
        self.instruments = Instruments()
        self.store = StoreMetrics(self.instruments)
        self.incoming = IncomingMetrics(self.instruments)
        self.runs = RunMetrics(self.instruments, provider, self.incoming.retries)
        self.outgoing = OutgoingMetrics(self.instruments, self.incoming)
