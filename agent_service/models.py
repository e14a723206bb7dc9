"""Which model thinks: made from the settings, with its SDK imported only when it is the one.

Importing an SDK takes a second of CPU and 50 to 75 MB, which commands that ask no model must not pay.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent_service.adapters.prices import Prices
from agent_service.adapters.scripted_model import ScriptedModel, read_script
from agent_service.errors import Misconfigured
from agent_service.model_settings import ModelSettings
from agent_service.ports import Model

CONNECT_WITHIN_S = 10.0


@asynccontextmanager
async def open_model(settings: ModelSettings) -> AsyncIterator[Model]:
    """The model of the settings; its connections are closed on leaving. Raises Misconfigured."""
    match settings.provider:
        case "scripted":
            yield ScriptedModel(read_script(settings.script_file()))
        case "anthropic":
            async with _claude(settings) as client:
                from agent_service.adapters.anthropic_model import AnthropicModel  # see above

                yield AnthropicModel(client, settings, Prices(_price_list(settings), settings.price))
        case "openai":
            raise Misconfigured("agent.model.provider openai is not built yet")


def _price_list(settings: ModelSettings) -> str:
    """The provider as the price list names it."""
    return {"anthropic": "anthropic", "bedrock": "aws", "vertex": "google"}[settings.platform]


def _claude(settings: ModelSettings) -> Any:
    """The SDK's client. No retries inside it, and no trace headers to the provider."""
    try:
        return _client(settings)
    except ImportError as error:
        needed = f"needs a package: pip install 'anthropic[{settings.platform}]'"
        raise Misconfigured(f"agent.model.platform {settings.platform} {needed}") from error
    except ValueError as error:
        raise Misconfigured(f"agent.model.platform {settings.platform}: {error}") from error


def _client(settings: ModelSettings) -> Any:
    import anthropic  # see above
    import httpx2  # only with a client

    shared: dict[str, Any] = {
        "max_retries": 0,
        "timeout": httpx2.Timeout(settings.timeout_s, connect=CONNECT_WITHIN_S),
        "base_url": settings.base_url,
        "open_telemetry": {"propagation": False, "traces": {"content_mode": "metadata_only"}},
    }
    if settings.platform == "bedrock":
        return anthropic.AsyncAnthropicBedrockMantle(**shared)
    if settings.platform == "vertex":
        return anthropic.AsyncAnthropicVertex(**shared)
    if settings.api_key is None:
        raise Misconfigured("there is no key for Claude: set ANTHROPIC_API_KEY, or agent.model.api_key_file")
    return anthropic.AsyncAnthropic(api_key=settings.api_key.get_secret_value(), **shared)
