"""May this tool result count? Whoever may publish results, and knows the id of a run, can say what it likes of it.

it brings the capability of the request that it names     yes
of another request that is under way                      only as the breach of protocol that it is
of none, from a tool whose executor echoes capabilities   no
of none, from any other tool                              as the answer to a request of that tool; as a breach of
                                                          protocol where nothing is asked of who echoes them
of none, from a tool that the run does not know           as a breach, where none of its tools echoes them

What does not count never ends, answers or escalates a run.
"""

from agent_service.core.brief import Brief
from agent_service.core.events import Proof
from agent_service.core.state import RunState
from agent_service.core.tools.correlate import Relation
from agent_service.core.tools.flights import flights, gatherings
from schemas.events import ToolResult


def unbelieved(state: RunState, result: ToolResult, proof: Proof | None, relation: Relation) -> str:
    if proof in (None, "named") or (proof == "another" and relation is Relation.VIOLATION):
        return ""
    if proof == "none" and _may_come_without(state, result.tool, relation):
        return ""
    brings = "the capability of another request" if proof == "another" else "no capability of a request of this run"
    return (
        f"a result of {result.tool} for step {result.step} brings {brings}: it counts for nothing; whoever carries "
        "tools out has to bring back what the request holds as `capability`"
    )


def _may_come_without(state: RunState, tool: str, relation: Relation) -> bool:
    brief = state.brief
    if brief.skill(tool) is None:
        return bool(brief.skills) and not any(skill.echoes_capability for skill in brief.skills)
    if relation is Relation.VIOLATION:
        return not any(_echoes(brief, asked) for asked in (tool, *_asked(state)))
    return not _echoes(brief, tool)


def _echoes(brief: Brief, tool: str) -> bool:
    skill = brief.skill(tool)
    return skill is not None and skill.echoes_capability


def _asked(state: RunState) -> list[str]:
    asked = [flight.pending.action.tool for flight in flights(state.waiting)]
    return [*asked, *(gathering.first.action.tool for gathering in gatherings(state.waiting))]
