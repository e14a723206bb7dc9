"""Rules about runs that a run started, judged from the states and journals of both. Pure.

They say again, in their own way, what the core sees to. Each yields a line for what broke it, and where.
"""

from collections.abc import Callable, Iterator

from agent_service.core.brief import Limits
from agent_service.core.state import RunState
from agent_service.core.waiting import ForPerson
from agent_service.workbench.evaluation.observed import Observed


def _a_child_has_no_more_than_its_parent(seen: Observed) -> Iterator[str]:
    """No tool, no depth, no later deadline and no more to spend."""
    for parent, child in _pairs(seen):
        name, of_parent, of_child = child.run_id, parent.brief, child.brief
        if of_child.depth != of_parent.depth + 1 or of_child.depth > of_parent.limits.max_depth:
            yield f"{name} is at depth {of_child.depth}, and {of_parent.limits.max_depth} is the deepest"
        if of_child.limits.deadline_at > of_parent.limits.deadline_at:
            yield f"{name} has until {of_child.limits.deadline_at}, its parent until {of_parent.limits.deadline_at}"
        if more := {skill.name for skill in of_child.skills} - {skill.name for skill in of_parent.skills}:
            yield f"{name} has tools that its parent has not: {', '.join(sorted(more))}"
        yield from (f"{name} may spend {what}" for what in _beyond(of_child.limits, of_parent.limits))


def _beyond(of_child: Limits, of_parent: Limits) -> Iterator[str]:
    amounts = (
        ("steps", of_child.max_steps, of_parent.max_steps),
        ("tokens", of_child.max_tokens, of_parent.max_tokens),
        ("USD", of_child.max_cost_usd, of_parent.max_cost_usd),
    )
    for what, given, of in amounts:
        if of is not None and (given is None or given > of):
            yield f"{given or 'any number of'} {what}, its parent {of}"


def _all_that_a_run_has_is_shared(seen: Observed) -> Iterator[str]:
    """Steps and tokens of a run and of all that it started, together, are what it was given."""
    state = seen.state
    if state is None:
        return
    limits = state.brief.limits
    steps = sum(run.state.step for run in seen.tree if run.state)
    if steps > limits.max_steps:
        yield f"{steps} steps were taken in all, and {limits.max_steps} are allowed"
    theirs = sum(child.brief.limits.max_steps for _, child in _pairs(seen) if not child.final)
    if state.step + theirs > limits.max_steps:
        yield f"{theirs} steps are granted to runs that it waits for, and {limits.max_steps - state.step} are left"


def _nobody_works_for_a_run_that_ended(seen: Observed) -> Iterator[str]:
    for parent, child in _pairs(seen):
        if parent.final and not child.final:
            yield f"{child.run_id} is {child.status}, and nobody waits for it"
        if isinstance(child.waiting, ForPerson) and child.waiting.stop.ending_class.startswith("budget"):
            yield f"{child.run_id} waits for more than it was given, and only its parent can give it"


def _strangers_of_a_child_are_its_parents(seen: Observed) -> Iterator[str]:
    done = {f"step:{record.step}" for record in (seen.state.completed if seen.state else ())}
    for parent, child in _pairs(seen):
        step = child.brief.parent.step if child.brief.parent else 0
        if child.strangers and f"step:{step}" in done and not parent.strangers:
            yield f"{child.run_id} read what strangers wrote, and its parent trusts what it brought"


def _pairs(seen: Observed) -> Iterator[tuple[RunState, RunState]]:
    """The run with each that it started. Runs that those started are judged with them."""
    for child in seen.children:
        if seen.state and child.state:
            yield seen.state, child.state


Rule = Callable[[Observed], Iterator[str]]
RULES: tuple[Rule, ...] = (
    _a_child_has_no_more_than_its_parent,
    _all_that_a_run_has_is_shared,
    _nobody_works_for_a_run_that_ended,
    _strangers_of_a_child_are_its_parents,
)
