"""The paper trail: the texts of a run's workspace files, from its whole journal. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent_service.journal import Entry
from agent_service.moments import Moment, retell
from agent_service.telling.outputs import FILES
from agent_service.telling.pages.decisions import decisions_page
from agent_service.telling.pages.given import context_page, skills_page
from agent_service.telling.pages.progress import memory_page, plan_page
from agent_service.telling.pages.trace import trace

_RENDERERS: tuple[Callable[[Sequence[Moment]], str], ...] = (
    context_page,
    memory_page,
    skills_page,
    plan_page,
    decisions_page,
    trace,
)
_PAGES = dict(zip(FILES, _RENDERERS, strict=True))


def trail(entries: Sequence[Entry]) -> Mapping[str, str]:
    """The text of each file by its name. Raises ValueError for a journal that is empty or cannot be told."""
    return dict(pages_of(tuple(retell(entries))))


def pages_of(moments: Sequence[Moment]) -> Iterator[tuple[str, str]]:
    if not moments:
        raise ValueError("a trail needs at least one entry: this journal has none")
    for name, render in _PAGES.items():
        yield name, render(moments)
