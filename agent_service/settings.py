"""Settings of the agent: the section `agent:` of agentic.yaml, overridden by the environment (`AGENT_…`). They are
described in docs/CONFIGURATION.md.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, JsonValue, SecretStr, ValidationError, field_validator

from agent_service.archive.retention import KeepRunsSettings
from agent_service.models.settings import KEYS, ModelSettings, Provider
from groundwork.nats.settings import ServiceSettings
from groundwork.service import config_file
from groundwork.service.config_file import Port, Section, ServerSettings, interpolated, leaves, parsed, written
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import InFile, Secret, is_loopback, secret_fault
from schemas import catalog, subjects
from schemas.catalog import Approve, ToolOffer
from schemas.fields import ToolName, validation_flaws
from schemas.operations import Scope

SECTION = "agent"
OWN_KEY = "MODEL__API_KEY"
DUCTILE_TOKEN = re.compile(r"gateway\.(ductile|ductiles\.[^.]+)\.token")
"""Settings of the gateway, in the same file, that hold its tokens for Ductiles."""
_LONGEST_S = 365 * 86400.0

_NAME = "[a-z0-9][a-z0-9_-]{0,63}"
CommandName = Annotated[str, written(rf"{_NAME}(\.{_NAME})?", "a tool or one of its commands: mail, or mail.send")]


# The callers, as quotas name them (such as `token ci` or `bus user ann of SHOP`), and the HTTP API

BUS = "bus"
"""Prefix of the names of senders on the bus, and the name of those that NATS does not name."""
SHORTEST_TOKEN, LONGEST_TOKEN = 16, 505
_SENDABLE = re.compile(rf"[!-~][ -~]{{0,{LONGEST_TOKEN - 2}}}[!-~]")
_OF_NOTHING = hashlib.sha256(b"").hexdigest()


def token_caller(name: str) -> str:
    return f"token {name}"


class QuotaSettings(Section):
    """Quota of one caller; a missing number is no limit."""

    wakes_per_minute: Annotated[int, Field(ge=1)] | None = None
    open_runs: Annotated[int, Field(ge=1)] | None = None
    bytes_per_day: Annotated[int, Field(ge=1)] | None = None
    usd_per_day: Annotated[float, Field(gt=0)] | None = None


UNBOUNDED = QuotaSettings.model_construct()


class WakersQuotaSettings(QuotaSettings):
    """Default quota of tokens without the scope `operate`."""

    wakes_per_minute: Annotated[int, Field(ge=1)] | None = 300
    open_runs: Annotated[int, Field(ge=1)] | None = 1000
    bytes_per_day: Annotated[int, Field(ge=1)] | None = 100_000_000


class TokenSettings(Section):
    """Bearer token of the HTTP API: the token itself (from a file or the environment), or its SHA-256."""

    name: Annotated[str, written(subjects.NAME.pattern, subjects.NAME_FORM)]
    scopes: frozenset[Scope] = frozenset(get_args(Scope))
    token: Secret | None = None
    sha256: Annotated[str, written("[0-9a-f]{64}", "what `printf %s TOKEN | sha256sum` prints")] | None = None
    quota: QuotaSettings | None = None

    def digest(self) -> str:
        """SHA-256 in hex. Raises Misconfigured for a token that no request can bring."""
        if (self.token is None) == (self.sha256 is None):
            raise Misconfigured(f"token {self.name}: give either `token` or `sha256`")
        if self.sha256 == _OF_NOTHING:
            raise Misconfigured(f"token {self.name}: `sha256` is that of an empty token: was the variable set?")
        if self.token is None:
            return str(self.sha256)
        secret = self.token.get_secret_value()
        if fault := secret_fault(secret, shortest=SHORTEST_TOKEN):
            raise Misconfigured(f"token {self.name} {fault}")
        if not _SENDABLE.fullmatch(secret):
            text = f"at most {LONGEST_TOKEN} printable ASCII characters, without spaces around them"
            raise Misconfigured(f"token {self.name} fits in no request: a token has {text}")
        return hashlib.sha256(secret.encode()).hexdigest()


class ApiSettings(ServerSettings):
    """Address of the HTTP API, and its callers."""

    port: Port = 8700
    tokens: tuple[TokenSettings, ...] = ()
    max_queued: Annotated[int, Field(ge=1)] = 10_000
    quota: WakersQuotaSettings = WakersQuotaSettings.model_construct()

    def quota_of(self, token: TokenSettings) -> QuotaSettings:
        return token.quota or (QuotaSettings() if "operate" in token.scopes else self.quota)

    def bearers(self) -> dict[str, TokenSettings]:
        """Tokens by their digest. Raises Misconfigured for settings that would open the API to other machines."""
        bearers: dict[str, TokenSettings] = {}
        for token in self.tokens:
            other = bearers.setdefault(token.digest(), token).name
            if other != token.name:
                raise Misconfigured(f"agent.http.tokens {other} and {token.name} are the same token: give each its own")
        if not bearers and not is_loopback(self.host):
            raise Misconfigured(
                f"the HTTP API would listen on {self.host} for everybody: configure `agent.http.tokens`, "
                "or listen on 127.0.0.1"
            )
        return bearers


# Runs and their tools


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

    def own_tools(self) -> tuple[ToolOffer, ...]:
        return (catalog.agent_tool(),) if self.limits.max_depth else ()


SECRETS = frozenset({"token", "secret", "previous_secret", "password", "api_key"})


def secrets_in_file(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Secrets of all programs in the file, by place (`gateway.ductile.token`), without plugin configuration: a plugin
    may have the token for our own API."""
    found: dict[str, str] = {}
    for (*above, last), value in leaves(interpolated(parsed(path), environ)):
        name = last.removesuffix("_file")
        if name in SECRETS and isinstance(value, str) and value and config_file.OF_PLUGINS not in pairwise(above):
            with suppress(OSError, ValueError):  # loading the settings reports it
                found[".".join((*above, name))] = value if name == last else InFile(value).text()
    return found


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> AgentSettings:
    """Reads the settings. Raises Misconfigured, with every problem and its place."""
    loaded = config_file.load(AgentSettings, SECTION, path, environ, other_sections=("gateway",))
    secrets = secrets_in_file(path, environ) if path else {}
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
