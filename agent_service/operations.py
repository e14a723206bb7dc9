"""What operators ask beyond waking, watching and cancelling runs, put together: a part of the composition root.

Loaded when callers are let in, for it takes time to load.
"""

from agent_service.api.dead_letters import DeadLetterCalls
from agent_service.api.inbox import InboxCalls
from agent_service.api.inspection import Inspection
from agent_service.api.operations import Operations
from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.ports import PromptText, Question
from agent_service.store.sqlite import SqliteStore
from groundwork.nats.link import NatsLink

MOST_LETTERS = 10_000
"""Messages of the stream of dead letters that are looked through, the newest."""


def operations(store: SqliteStore, link: NatsLink) -> Operations:
    letters = NatsDeadLetters(link, most=MOST_LETTERS)
    return Operations(
        inspection=Inspection(store, store, prompt_of),
        inbox=InboxCalls(store, store.inbox, letters),
        letters=DeadLetterCalls(letters),
    )


def prompt_of(question: Question) -> PromptText:
    """What a model is told with a question. Templates are loaded when first asked for: a script needs none."""
    from agent_service.models.prompts.prompt import as_text

    return as_text(question)
