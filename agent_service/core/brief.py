"""What a run was asked and given: the goal, what it may spend, and its tools.

It does not change from step to step, so that a store can keep it apart from what is written with every entry.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core.phases import Action
from schemas.catalog import ToolCommand, ToolOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuations:
    """What a tool may ask for before it answers its step. Counted for each step, with all that its tasks ask for."""

    retrieval_tool: str = "knowledge"
    """What `retrieve` asks: a tool, by its first read, or one of its commands (`tool.command`)."""
    max_plugin_continuations: int = 3
    max_plugin_total_time_ms: int = 60_000
    """From the first continuation on, without the time in which a person is waited for."""
    continuation_retrieval_profile: str = "fast"
    """The profile of a retrieval that names none."""
    max_tasks: int = 100
    """Tasks of one continuation."""
    parallel: int = 4
    """Requests of a run that are under way at the same time while it gathers."""
    parallel_per_tool: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may spend. Instants are UTC, `_s` is seconds; null means no limit."""

    deadline_at: datetime
    max_steps: int = 10
    max_reframes: int = 2
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_attempts: int = 3
    """Attempts of one step."""
    max_attempts_of_run: int = 40
    max_repairs: int = 2
    """Unusable decisions of one phase that are asked for again."""
    max_refused_done: int = 3
    max_depth: int = 0
    """How many agents may call each other in a row: a run at a lower depth may start others as its steps."""
    max_children: int = 4
    """How many of them at the same time."""
    on_budget: Literal["escalate", "pause"] = "escalate"
    max_notes: int = 48_000
    """How long the notes of a run may grow, in characters, before they are compacted into facts."""
    queue_wait_s: float = 240.0
    """How long a tool request may wait before the tool begins."""
    retry_base_s: float = 2.0
    deadline_named: bool = False
    """The caller named the deadline. Another stands still while a person is waited for."""
    parallel_reads: int = 1
    """How many reads one plan may hold."""
    max_questions: int = 5
    """Questions that the model may ask of people."""
    answer_s: float = 7 * 86400.0
    """How long a question waits for its answer."""
    approval_s: float = 86400.0
    """How long an approval is waited for."""
    on_expiry: Literal["reject", "escalate"] = "reject"
    """What comes of an approval that nobody gave in time."""
    reopen_days: float = 7.0
    """How long after it was handed to a person an answer can set the run going again."""
    continuations: Continuations = Continuations()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Which step of which run a run is: its end is that step's result. `step` is 0 where a start only names the run
    that led to it; `task`, `round` and `attempt` as in Pending."""

    run_id: str
    step: int = 0
    task: str = ""
    round: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a child may spend of its parent's budgets: set aside while it runs. Null where the parent has no limit."""

    steps: int
    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a run was asked and given."""

    goal: str
    context: dict[str, JsonValue]
    limits: Limits
    fused: bool = True
    """One model call serves Frame or Reflect, and Plan along with it."""
    depth: int = 0
    """How many agents called each other to get here."""
    parent: Parent | None = None
    tools: tuple[str, ...] | None = None
    """As in WakeAccepted."""
    callback: str | None = None
    announced: bool = True
    """It came by the wake API, and `agentic.start` says so to others."""
    trace_url: str | None = None
    """Where the run's trace is shown."""
    verify: bool = False
    untrusted: bool = False
    caller: str = ""
    named: tuple[str, ...] = ()
    """All as in WakeAccepted."""
    skills: tuple[ToolOffer, ...] = ()
    """Frozen when the run is framed."""

    @property
    def may_have_children(self) -> bool:
        return self.depth < self.limits.max_depth

    @property
    def as_step(self) -> Parent | None:
        return self.parent if self.parent and self.parent.step else None

    def skill(self, tool: str) -> ToolOffer | None:
        return next((skill for skill in self.skills if skill.name == tool), None)

    def command(self, action: Action) -> ToolCommand | None:
        skill = self.skill(action.tool)
        return next((c for c in skill.commands if c.name == action.command), None) if skill else None
