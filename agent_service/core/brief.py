"""The brief of a run: its goal, limits and tools. It rarely changes, so a store keeps it apart from the entries."""

from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.core.phases import Action
from schemas.catalog import ToolCommand, ToolOffer
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuations:
    """Limits of the tasks that a tool may ask for before it answers. They hold per step, nested tasks included."""

    retrieval_tool: str = "knowledge"
    """A tool (its first read command) or `tool.command`."""
    max_plugin_continuations: int = 3
    max_plugin_total_time_ms: int = 60_000
    """Counted from the first continuation, without the time that a person takes."""
    continuation_retrieval_profile: str = "fast"
    max_tasks: int = 100
    parallel: int = 4
    parallel_per_tool: int = 4


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`max_depth`: of agents that call agents. `max_notes`: characters before they are compacted. `queue_wait_s`: time
    that a tool request may wait before its tool begins. `deadline_named`: the caller set it; any other stands still
    while the run waits for a person. `reopen_days`: after an escalation, for an answer that reopens the run.
    """

    deadline_at: datetime
    max_steps: int = 10
    max_reframes: int = 2
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_attempts: int = 3
    max_attempts_of_run: int = 40
    max_repairs: int = 2
    max_refused_done: int = 3
    max_depth: int = 0
    max_children: int = 4
    on_budget: Literal["escalate", "pause"] = "escalate"
    max_notes: int = 48_000
    queue_wait_s: float = 240.0
    retry_base_s: float = 2.0
    deadline_named: bool = False
    parallel_reads: int = 1
    max_questions: int = 5
    answer_s: float = 7 * 86400.0
    approval_s: float = 86400.0
    on_expiry: Literal["reject", "escalate"] = "reject"
    reopen_days: float = 7.0
    continuations: Continuations = Continuations()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The run and step that started a run; `step` is 0 where the parent does not wait for it."""

    run_id: str
    step: int = 0
    task: str = ""
    round: int = 0
    attempt: int = 1


@dataclass(frozen=True, kw_only=True)
class Spent:
    """`cost_usd` is null once a price is unknown. `lost_…`: of calls whose reply was lost; it counts against limits."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    cache_read_tokens: int = 0
    lost_calls: int = 0
    lost_tokens: int = 0
    lost_cost_usd: float | None = 0.0
    child_steps: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def used(self) -> int:
        """Tokens, with those of lost replies."""
        return self.tokens + self.lost_tokens

    @property
    def paid(self) -> float | None:
        """Cost in USD, with that of lost replies; null if a price is unknown."""
        return None if self.cost_usd is None or self.lost_cost_usd is None else self.cost_usd + self.lost_cost_usd

    def plus(self, **more: float | None) -> "Spent":
        """Adds to each field. A sum is null where one of its parts is."""
        sums: dict[str, Any] = dict(vars(self))
        for name, amount in more.items():
            sums[name] = None if amount is None or sums[name] is None else sums[name] + amount
        return Spent(**sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A child's share of its parent's budgets. Null: the parent has no limit."""

    steps: int
    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True)
class Brief:
    """`announced`: it came by the wake API, so `agentic.start` is published. `trace_url` is fixed at the wake, so that
    rebuilt events are identical. `untrusted`: goal or context hold such content. `caller` owns the quota. `skills` are
    frozen when the run starts.
    """

    goal: str
    limits: Limits
    context: dict[str, JsonValue] = field(default_factory=dict)
    fused: bool = True
    short_rules: bool = False
    """Prompts begin with rules for small models."""
    depth: int = 0
    """Number of agents above this one."""
    parent: Parent | None = None
    tools: tuple[str, ...] | None = None
    """Allowed tools; null allows all on offer."""
    callback: str | None = None
    announced: bool = False
    trace_url: str | None = None
    verify: bool = False
    untrusted: bool = False
    caller: str = ""
    named: tuple[str, ...] = ()
    """Hosts and addresses that a child of a tainted parent may read."""
    skills: tuple[ToolOffer, ...] = ()

    @property
    def may_have_children(self) -> bool:
        return self.depth < self.limits.max_depth

    @property
    def as_step(self) -> Parent | None:
        return self.parent if self.parent and self.parent.step else None

    def skill(self, tool: str) -> ToolOffer | None:
        for skill in self.skills:
            if skill.name == tool:
                return skill
        return None

    def command(self, action: Action) -> ToolCommand | None:
        for skill in self.skills:
            for command in skill.commands if skill.name == action.tool else ():
                if command.name == action.command:
                    return command
        return None

    def writes(self, action: Action) -> bool:
        command = self.command(action)
        return command is None or command.tier == "write"
