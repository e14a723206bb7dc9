"""Who thought: the models of a run, so that no page shows their words without their names. Pure."""

from collections.abc import Iterable

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Phase
from agent_service.telling.moments import Moment
from agent_service.telling.pages.markdown import inline
from agent_service.telling.sayings import speaker


def thought_by(moments: Iterable[Moment], *phases: Phase) -> str:
    """One line of Markdown with the models that replied when asked for one of `phases`; empty while none has."""
    models: dict[str, None] = {}
    for moment in moments:
        asking = moment.before.asking if moment.before else None
        if asking and asking.phase in phases and isinstance(moment.event, ModelReplied):
            models[moment.event.model] = None
    names = " and ".join(inline(speaker(model)) for model in models)
    return f"Thought by {names}." if names else ""
