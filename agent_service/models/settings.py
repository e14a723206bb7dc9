"""Settings of the model, and the factory of its adapter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from agent_service.core.phases import Phase
from groundwork.service.config_file import Section, written
from groundwork.service.errors import Misconfigured
from groundwork.service.program import loaded
from groundwork.service.secret import Secret, secret_fault, secrets_in_url

if TYPE_CHECKING:
    from agent_service.run.ports import ModelProvider as ModelOfRuns

Provider = Literal["scripted", "anthropic", "openai"]
ThinkingPhase = Literal["frame", "plan", "reflect", "compact", "verify"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]

OF_ENVIRONMENT = "environment"
"""The proxy of the environment (HTTPS_PROXY and the like)."""
Proxy = Annotated[str, written(rf"{OF_ENVIRONMENT}|(https?|socks5h?)://\S+", f"http://HOST:PORT, or {OF_ENVIRONMENT}")]
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""Environment variables of the providers' keys."""
DEFAULT_MODEL = "claude-sonnet-5-5"
MOST_REPLY_TOKENS = 64_000
CONNECT_WITHIN_S = 10.0


class PriceSettings(Section):
    """Price in USD per million tokens of a model that the price list does not know; 0 for one of your own."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cache_read: Annotated[float, Field(ge=0)] | None = None
    cache_write: Annotated[float, Field(ge=0)] | None = None


class PhaseSettings(Section):
    """Overrides for one phase; absent values are those of the model section."""

    model: str | None = None
    effort: Effort | None = None
    max_tokens: Annotated[int, Field(ge=256, le=MOST_REPLY_TOKENS)] | None = None


class ModelSettings(Section):
    """Provider, model and their parameters. The scripted model follows a YAML file of rules and needs no key."""

    provider: Provider = "scripted"
    script: Path | None = None
    model: str | None = None
    api_key: Secret | None = None
    base_url: str | None = None
    allow_http_nonloopback: bool = False
    proxy: Proxy | None = Field(None, repr=False)
    platform: Literal["anthropic", "bedrock", "vertex"] = "anthropic"
    effort: Effort | None = None
    prompt: Literal["full", "short"] = "full"
    max_tokens: Annotated[int, Field(ge=256, le=MOST_REPLY_TOKENS)] = 8000
    timeout_s: Annotated[float, Field(gt=0)] = 300.0
    cache: Literal["auto", "5m", "1h", "off"] = "auto"
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Field(ge=1000)] | None = None
    price: PriceSettings | None = None
    phases: dict[ThinkingPhase, PhaseSettings] = Field(default_factory=dict)

    def secrets(self) -> tuple[str, ...]:
        key = (self.api_key.get_secret_value(),) if self.api_key else ()
        return (*key, *secrets_in_url(self.base_url or ""), *secrets_in_url(self.proxy or ""))

    def script_file(self) -> Path:
        return self.script or Path(str(resources.files("agent_service") / "scripts" / "demo.yaml"))

    def known_as(self) -> str:
        if self.provider == "anthropic":
            return {"bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai"}.get(self.platform, "anthropic")
        return self.provider

    def names(self) -> tuple[str, ...]:
        phases = (phase for phase in Phase if phase is not Phase.ACT)
        return tuple(dict.fromkeys(str(self.of(phase).model) for phase in phases))

    def of(self, phase: Phase) -> PhaseSettings:
        own = self.phases.get(phase.value, PhaseSettings())  # type: ignore[call-overload] # act is not asked for
        return PhaseSettings(
            model=own.model or self.model or DEFAULT_MODEL,
            effort=own.effort or self.effort,
            max_tokens=own.max_tokens or self.max_tokens,
        )


# Only the chosen provider's SDK is imported: that takes a second of CPU and 50 to 75 MB


@asynccontextmanager
async def open_model(settings: ModelSettings) -> AsyncIterator["ModelOfRuns"]:
    """Opens the model of the settings; its connections are closed on exit. Raises Misconfigured."""
    _check(settings)
    try:
        opened = loaded(f"agent_service.models.{settings.provider}_model:opened")
    except ImportError as error:
        needed = f"pip install 'agentic-loop-nats[{settings.provider}]'"
        raise Misconfigured(f"agent.model.provider {settings.provider} needs a package: {needed}") from error
    async with opened(settings) as model:
        yield model


def _check(settings: ModelSettings) -> None:
    """Refuses what is missing, and a key that no request can carry: each error would quote it."""
    if settings.api_key is not None:
        key = settings.api_key.get_secret_value()
        is_plain = key.isascii() and key.isprintable() and " " not in key
        if fault := secret_fault(key) or ("" if is_plain else "has a blank, a line break or a sign that no key has"):
            raise Misconfigured(f"the key of the model {fault}: correct agent.model.api_key, or its file or variable")
    if settings.provider == "openai" and settings.model is None:
        raise Misconfigured("provider openai has no default model: set agent.model.model, or agent.llm_model")
    needs_none = settings.base_url if settings.provider == "openai" else settings.platform != "anthropic"
    if settings.provider in KEYS and settings.api_key is None and not needs_none:
        wanted = f"set {KEYS[settings.provider]} or agent.model.api_key_file"
        wanted += "; for a server of your own agent.model.base_url" if settings.provider == "openai" else ""
        raise Misconfigured(f"there is no key of the model: {wanted}")
