"""Result authentication: a refused result never ends, answers or escalates a run.

capability of the request that it names             counts
of another pending request                          counts as a breach of protocol
none, where the tool's executor echoes them         refused
none, from any other tool                           answers a request of that tool; a breach of protocol where no
                                                    pending request went to an executor that echoes them
none, from a tool unknown to the run                a breach of protocol, if none of its tools echoes them
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
