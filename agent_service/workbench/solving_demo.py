"""`agentic demo --z3`: constraints that contradict each other, what may be relaxed looked up, and solved again."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from rich.text import Text
from rich.tree import Tree

from agent_service.cli.client import Json
from agent_service.cli.errors import Exit
from agent_service.cli.runs.drawing import MARKS, UNKNOWN
from agent_service.history.plain import one_line
from agent_service.workbench.dev import DevOptions, DevStack
from agent_service.workbench.showing import WIDTH, Outcome, Story, follow, show, tell_the_trail
from groundwork.service.errors import Misconfigured
from groundwork.service.installed import shipped

GOAL = (
    "Equip at least 12 workplaces: a seat costs 900, which is fixed, the budget is 10000, and the house has room for "
    "100. Have z3-solver find the number of seats and the cost; where limits contradict each other, relax only what "
    "our pages allow, and say what it was."
)


async def run_solving_demo(folder: Path, *, as_json: bool) -> Exit:
    """OK when the solver found relaxed values and the paper trail is whole. Raises Misconfigured without z3."""
    if find_spec("z3") is None:
        raise Misconfigured(
            "the solver is not installed: pip install 'agentic-loop-nats[z3]', or from a checkout: make setup"
        )
    with resources.as_file(resources.files("agent_service") / "scripts" / "solving.yaml") as script:
        options = DevOptions(folder=folder, script=script)
        return await show("agentic demo --z3", options, _play, as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class _Outcome(Outcome):
    results: tuple[Json, ...]

    @property
    def solved(self) -> Json:
        output: Json = (self.results[-1]["result"] or {}).get("output", {}) if self.results else {}
        return output

    @property
    def exit_code(self) -> Exit:
        relaxed = self.solved.get("status") == "sat" and self.solved["relaxed"]
        return super().exit_code if relaxed else Exit.FAILED

    def for_programs(self) -> Json:
        requests = [
            {name: result.get(name) for name in ("step", "task", "round", "tool", "status")} for result in self.results
        ]
        return super().for_programs() | {"requests": requests, "solved": self.solved}


async def _play(made: DevStack, told: Story) -> _Outcome:
    told.say(f"the pages are in {shipped('deploy', 'knowledge')}")
    entries: list[Json] = []
    outcome = _Outcome(**vars(await follow(made, GOAL, told, entries)), results=tuple(_results(entries)))
    _tell(made, outcome, told)
    return outcome


def _results(entries: list[Json]) -> Iterator[Json]:
    return (entry["event"]["result"] for entry in entries if entry["kind"] == "ToolReturned")


def _tell(made: DevStack, outcome: _Outcome, told: Story) -> None:
    told.chapter("what the step was made of")
    told.console.print(_tree(outcome.results), width=WIDTH)
    told.chapter("the result")
    for step in outcome.view["steps"]:
        told.console.print(Text(step["summary"] or ""), width=WIDTH)
    tell_the_trail(made, outcome, told)


def _tree(results: tuple[Json, ...]) -> Tree:
    first, *others = [_line(result) for result in results] or [Text("nothing was answered")]
    tree = Tree(first, guide_style="dim")
    for other in others:
        tree.add(other)
    return tree


def _line(result: Json) -> Text:
    mark, colour = MARKS.get(result["status"], UNKNOWN)
    name = f"{result['task']}, round {result['round']}" if result.get("task") else f"step {result['step']}"
    said = (result["result"] or {}).get("summary") or (result["error"] or {}).get("message", "")
    first = one_line(said.partition("\n")[0])
    return Text.assemble((f"{mark} ", colour), (f"{name}: {result['tool']}", "bold"), f"  {first}")
