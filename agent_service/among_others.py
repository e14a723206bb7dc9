"""What makes an agent one of several that share a store: it hears what they commit, and takes over what they leave."""

from functools import partial

from agent_service.background import Background
from agent_service.building import Agent
from agent_service.moments import Elsewhere
from agent_service.overtaken import Overtaken
from agent_service.store.shared import SharedStore
from groundwork.service.foundations import SharedGround


def join_in(agent: Agent, background: Background) -> None:
    """Let it hear of the others, if it has any. To be done before it begins."""
    store, ground = agent.store, agent.ground
    if not isinstance(store, SharedStore) or not isinstance(ground, SharedGround):
        return
    members, turns, recovery = ground.members, agent.turns, agent.recovery
    overtaken = Overtaken(members.me, turns, agent.thinker, store, recovery, background)
    listeners = overtaken.hear, agent.feed.elsewhere, agent.limits.elsewhere

    def hear(told: Elsewhere) -> None:
        for listener in listeners:
            listener(told)

    def take_over(member: str) -> None:
        recovery.left.set()
        turns.accepted.set()
        background.start(agent.paper.take_over(store, member, agent.clock.now(), partial(members.mine, member)))

    store.on_elsewhere, store.on_halt = hear, agent.halting.hear
    members.gone.append(take_over)
