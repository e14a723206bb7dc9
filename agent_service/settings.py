"""Settings of the agent: the section `agent:` of agentic.yaml, overridden by the environment (`AGENT_…`). They are
described in docs/CONFIGURATION.md.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, SecretStr, ValidationError, field_validator

from agent_service.admission.callers import BUS, UNBOUNDED, ApiSettings, QuotaSettings, token_caller
from agent_service.archive.retention import KeepRunsSettings
from agent_service.models.settings import KEYS, ModelSettings, Provider
from agent_service.trust.oversight import Oversight
from groundwork.nats.settings import ServiceSettings
from groundwork.service import config_file
from groundwork.service.config_file import Section, written
from groundwork.service.errors import Misconfigured
from schemas import catalog
from schemas.catalog import Approve, ToolOffer
from schemas.fields import ToolName, validation_flaws

SECTION = "agent"
OWN_KEY = "MODEL__API_KEY"
DUCTILE_TOKEN = re.compile(r"gateway\.(ductile|ductiles\.[^.]+)\.token")
"""Settings of the gateway, in the same file, that hold its tokens for Ductiles."""
_LONGEST_S = 365 * 86400.0

_NAME = "[a-z0-9][a-z0-9_-]{0,63}"
CommandName = Annotated[str, written(rf"{_NAME}(\.{_NAME})?", "a tool or one of its commands: mail, or mail.send")]


class LimitSettings(Section):
    """Default budgets of a run, and the most that a caller may request."""

    max_steps: Annotated[int, Field(ge=1)] = 10
    cap_steps: Annotated[int, Field(ge=1)] = 20
    max_reframes: Annotated[int, Field(ge=0)] = 2
    max_attempts: Annotated[int, Field(ge=1)] = 3
    max_attempts_of_run: Annotated[int, Field(ge=1)] = 40
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    cap_tokens: Annotated[int, Field(ge=1)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    cap_cost_usd: Annotated[float, Field(gt=0)] | None = None
    max_repairs: Annotated[int, Field(ge=0)] = 2
    max_notes: Annotated[int, Field(ge=1000)] = 48_000
    wall_clock_s: Annotated[float, Field(gt=0, le=_LONGEST_S)] = 3600.0
    on_budget: Literal["escalate", "pause"] = "escalate"
    queue_wait_s: Annotated[float, Field(ge=0, le=_LONGEST_S)] = 1800.0
    retry_base_s: Annotated[float, Field(ge=0, le=_LONGEST_S)] = 2.0
    parallel_reads: Annotated[int, Field(ge=1, le=8)] = 1
    max_questions: Annotated[int, Field(ge=0)] = 5
    answer_s: Annotated[float, Field(gt=0, le=_LONGEST_S)] = 7 * 86400.0
    approval_s: Annotated[float, Field(gt=0, le=_LONGEST_S)] = 86400.0
    on_expiry: Literal["reject", "escalate"] = "reject"
    reopen_days: Annotated[float, Field(ge=0, le=_LONGEST_S / 86400)] = 7.0
    max_depth: Annotated[int, Field(ge=0)] = 0
    max_children: Annotated[int, Field(ge=1, le=100)] = 4
    usd_per_day: Annotated[float, Field(gt=0)] | None = None
    max_context_bytes: Annotated[int, Field(ge=0)] = 64 * 1024


class ContinuationSettings(Section):
    """Limits of a tool's continuations, per step and including those of its tasks."""

    retrieval_tool: CommandName = "knowledge"
    max_plugin_continuations: Annotated[int, Field(ge=0, le=10)] = 3
    max_plugin_total_time_ms: Annotated[int, Field(ge=1)] = 60_000
    continuation_retrieval_profile: ToolName = "fast"
    max_tasks: Annotated[int, Field(ge=1, le=100)] = 100
    parallel: Annotated[int, Field(ge=1, le=64)] = 4
    parallel_per_tool: Annotated[int, Field(ge=1, le=64)] = 4


def _by_tool(given: object) -> object:
    if isinstance(given, str):
        raise ValueError("say of which tool or command, as in {mail.send: always}")  # noqa: TRY004 - pydantic's way
    return given


class ToolsSettings(Section):
    """Tools that runs may use, and rules for their results."""

    only: tuple[str, ...] | None = None
    require_capability: bool = False
    declared: tuple[dict[str, JsonValue], ...] = ()

    @field_validator("declared")
    @classmethod
    def _can_be_offered(cls, declared: tuple[dict[str, JsonValue], ...]) -> tuple[dict[str, JsonValue], ...]:
        for tool in declared:
            try:
                ToolOffer.model_validate(tool, extra="forbid")
            except ValidationError as error:
                raise ValueError(f"{tool.get('name', 'a tool without a name')}: {validation_flaws(error)}") from None
        return declared


class AgentSettings(ServiceSettings):
    """All settings of the agent."""

    store: Path = Path(".agentic/agent")
    cache: Path = Path(".agentic/agent-copy")
    keep_runs: KeepRunsSettings = KeepRunsSettings.model_construct()
    workspaces: Path = Path(".agentic/workspaces")
    keep_pages: Annotated[int, Field(ge=1)] = 10
    http: ApiSettings = ApiSettings.model_construct()
    bus_quota: QuotaSettings = QuotaSettings.model_construct()
    model: ModelSettings = ModelSettings.model_construct()
    llm_provider: Provider | None = None
    llm_model: str | None = None
    limits: LimitSettings = LimitSettings.model_construct()
    continuations: ContinuationSettings = ContinuationSettings.model_construct()
    tools: ToolsSettings | tuple[str, ...] | None = None
    approve: Annotated[dict[CommandName, Approve], BeforeValidator(_by_tool)] = Field(default_factory=dict)
    untrusted: tuple[ToolName, ...] = ()
    trusted: tuple[CommandName, ...] = ()
    turns: Annotated[int, Field(ge=1)] = 64
    phases: Literal["fused", "separate"] = "fused"
    verify: bool = True
    trace_url: Annotated[str, written(r"https?://\S*\{trace_id\}\S*", "an address with {trace_id} in it")] | None = None

    @property
    def tool_rules(self) -> ToolsSettings:
        """`tools`, in either form."""
        return self.tools if isinstance(self.tools, ToolsSettings) else ToolsSettings(only=self.tools)

    def for_model(self, *, verifies: bool) -> Self:
        """Runs are verified only if the model can do so."""
        return self.model_copy(update={"verify": self.verify and verifies})

    def quota_of(self, caller: str) -> QuotaSettings:
        """Quota of a caller, by its name: `token NAME`, or `bus` and the sender that NATS names."""
        if caller.startswith(BUS):
            return self.bus_quota
        named = (self.http.quota_of(token) for token in self.http.tokens if caller == token_caller(token.name))
        return next(named, UNBOUNDED)

    def oversight(self) -> Oversight:
        return Oversight(approve=self.approve, untrusted=frozenset(self.untrusted), trusted=frozenset(self.trusted))

    def own_tools(self) -> tuple[ToolOffer, ...]:
        return (catalog.agent_tool(),) if self.limits.max_depth else ()


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> AgentSettings:
    """Reads the settings. Raises Misconfigured, with every problem and its place."""
    loaded = config_file.load(AgentSettings, SECTION, path, environ, other_sections=("gateway",))
    secrets = config_file.secrets_in_file(path, environ) if path else {}
    for place in filter(DUCTILE_TOKEN.fullmatch, secrets):
        digest = hashlib.sha256(secrets[place].encode()).hexdigest()
        for token in loaded.http.tokens:
            if digest in (token.sha256, token.token and token.digest()):
                raise Misconfigured(f"agent.http.tokens: {token.name} is also {place}: give each its own")
    return loaded.model_copy(update={"model": _model(loaded, environ)})


def _model(loaded: AgentSettings, environ: Mapping[str, str]) -> ModelSettings:
    """Model section with the values of RFC-95's names and the key of the environment."""
    named = {"provider": loaded.llm_provider, "model": loaded.llm_model}
    model = loaded.model.model_copy(update={name: value for name, value in named.items() if value is not None})
    key = environ.get(KEYS.get(model.provider, ""), "")
    in_file = loaded.model.provider if "provider" in loaded.model.model_fields_set else model.provider
    is_of_another = in_file in KEYS and in_file != model.provider and not any(OWN_KEY in name for name in environ)
    own = None if is_of_another else model.api_key  # a key in the file belongs to the provider in the file
    return model.model_copy(update={"api_key": own or (SecretStr(key) if key else None)})
