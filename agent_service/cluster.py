"""Parts of an agent that shares its store with others; loaded only with such a store."""

from agent_service.background import Background
from agent_service.bootstrap import Agent, inform_bus
from agent_service.bus.turn_queue import TurnQueue
from agent_service.kill_switch import KillSwitch
from agent_service.run.intake import Intake
from agent_service.run.ports import RemoteCommit
from agent_service.run.queued_turns import QueuedTurns, RemoteCommitListener, TurnScheduler
from agent_service.run.recovery import Recovery
from agent_service.run.turn import Turns
from agent_service.store.shared import SharedStore
from agent_service.trust.identity import SystemClock


class Cluster:
    def __init__(
        self,
        store: SharedStore,
        queue: TurnQueue,
        runs: tuple[Turns, Intake, Recovery],
        kill_switch: KillSwitch,
        clock: SystemClock,
    ) -> None:
        self.queue = queue
        self.turns = QueuedTurns(store, *runs, kill_switch, clock)
        self.scheduler = TurnScheduler(store, queue, kill_switch, clock)


def join_in(agent: Agent, background: Background) -> None:
    """Queues turns and listens to commits of other agents. Call it before `agent` starts."""
    store, cluster = agent.store, agent.cluster
    if not isinstance(store, SharedStore) or cluster is None:
        return
    agent.turns.dispatching, agent.turns.again = cluster.queue, cluster.turns.again
    cluster.turns.republish = lambda at: inform_bus(agent.recovery, agent.receiving, at, agent.clock.now())
    if agent.traces:
        cluster.turns.on_redelivery = agent.traces.send_again
    remote_commits = RemoteCommitListener(agent.turns, agent.model_caller, store, background)

    def on_commit(commit: RemoteCommit) -> None:
        for observe in (remote_commits.on_commit, *agent.remote_observers, agent.limits.remote_commit):
            observe(commit)

    store.on_remote_commit, store.on_halt = on_commit, agent.halt_control.adopt
