"""Makes the model of the settings. Only its own SDK is imported: that takes a second of CPU and 50 to 75 MB."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from agent_service.errors import ModelError
from agent_service.models.prices import Prices
from agent_service.models.scripted_model import ScriptedModel, read_script
from agent_service.models.settings import CONNECT_WITHIN_S, ModelSettings
from agent_service.run.ports import Answer, ModelCall, Provider, Question
from groundwork.service.address import keeps_secrets, without_login
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import fault_of

NO_KEY = "no-key-is-set"

log = logging.getLogger(__name__)


class ContainedModel:
    """Turns unforeseen errors of a model or its SDK into retries: a run would stand still. Fills the port Provider."""

    def __init__(self, model: Provider) -> None:
        self._model = model

    def prepare(self, question: Question) -> ModelCall:
        try:
            call = self._model.prepare(question)
        except Exception as error:
            raise _broken(error, question) from error
        return replace(call, make=partial(self._make, call, question))

    @property
    def verifies(self) -> bool:
        return self._model.verifies

    async def check(self) -> tuple[str, ...]:
        return await self._model.check()

    async def _make(self, call: ModelCall, question: Question) -> Answer:
        try:
            return await call.make()
        except ModelError:
            raise
        except Exception as error:
            raise _broken(error, question) from error


@asynccontextmanager
async def open_model(settings: ModelSettings) -> AsyncIterator[Provider]:
    """The model of the settings; its connections are closed on leaving. Raises Misconfigured."""
    _check(settings)
    match settings.provider:
        case "scripted":
            yield ContainedModel(ScriptedModel(read_script(settings.script_file())))
        case "anthropic":
            async with _claude(settings) as client:
                from agent_service.models.anthropic_model import AnthropicApi  # see above
                from agent_service.models.call import LanguageModel

                _check_way(settings, str(client.base_url))
                prices = Prices(_price_list(settings), settings.price)
                yield ContainedModel(LanguageModel(AnthropicApi(client, settings), settings, prices))
        case "openai":
            async with _openai(settings) as client:
                from agent_service.models.call import LanguageModel  # see above
                from agent_service.models.openai_model import OpenAIApi, is_openai

                _check_way(settings, str(client.base_url))
                own = is_openai(client.base_url)
                prices = Prices("openai" if own else None, settings.price)
                yield ContainedModel(LanguageModel(OpenAIApi(client, settings, at_openai=own), settings, prices))


def _check(settings: ModelSettings) -> None:
    """A key or address that no request could be sent with would fail in every call, and be quoted in its error."""
    if settings.api_key is not None:
        key = settings.api_key.get_secret_value()
        if fault := fault_of(key):
            raise Misconfigured(f"the key of the model {fault} (agent.model.api_key, or the variable of its provider)")
        if not (key.isascii() and key.isprintable() and key == key.strip()):
            wrong = "has a blank or a line break about it, or a character that no key has"
            raise Misconfigured(
                f"the key of the model {wrong}: mend agent.model.api_key, or the file or variable of it"
            )
    if settings.base_url is not None:
        url = urlsplit(settings.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            shown = without_login(settings.base_url)
            raise Misconfigured(f"agent.model.base_url {shown!r} is no address: it begins with https://")


def _check_way(settings: ModelSettings, address: str) -> None:
    if settings.api_key is None or settings.allow_http_nonloopback or keeps_secrets(address):
        return
    why = "the key would go over plain http to another machine, and whoever listens on the way could use it"
    remedy = "use https, or set agent.model.allow_http_nonloopback"
    raise Misconfigured(f"agent.model.base_url {without_login(address)}: {why}: {remedy}")


def _price_list(settings: ModelSettings) -> str:
    return {"anthropic": "anthropic", "bedrock": "aws", "vertex": "google"}[settings.platform]


def _claude(settings: ModelSettings) -> Any:
    from anthropic import AnthropicError  # see above

    try:
        return _client(settings)
    except ImportError as error:
        needed = f"needs a package: pip install 'anthropic[{settings.platform}]'"
        raise Misconfigured(f"agent.model.platform {settings.platform} {needed}") from error
    except (AnthropicError, ValueError) as error:
        raise Misconfigured(f"agent.model.platform {settings.platform}: {error}") from error


def _client(settings: ModelSettings) -> Any:
    import anthropic  # see above
    import httpx2  # only with a client

    from agent_service.models.connection import connection

    key = settings.api_key if settings.platform == "anthropic" else None
    shared: dict[str, Any] = {
        "max_retries": 0,
        "timeout": httpx2.Timeout(settings.timeout_s, connect=CONNECT_WITHIN_S),
        "base_url": settings.base_url,
        "http_client": connection(settings, key),
        "open_telemetry": {"propagation": False, "traces": False},  # the journal tells of calls
    }
    if settings.platform == "bedrock":
        bedrock = anthropic.AsyncAnthropicBedrockMantle(**shared)
        return _able_to_sign(bedrock, "botocore" if bedrock.api_key is None else None)
    if settings.platform == "vertex":
        vertex = anthropic.AsyncAnthropicVertex(**shared)
        return _able_to_sign(vertex, "google.auth" if vertex.access_token is None else None)
    if settings.api_key is None:
        raise Misconfigured("there is no key for Claude: set ANTHROPIC_API_KEY, or agent.model.api_key_file")
    return anthropic.AsyncAnthropic(api_key=settings.api_key.get_secret_value(), **shared)


def _able_to_sign(client: Any, package: str | None) -> Any:
    if package:
        import_module(package)
    return client


def _openai(settings: ModelSettings) -> Any:
    if settings.model is None:
        raise Misconfigured("provider openai has no default model: set agent.model.model, or agent.llm_model")
    if settings.api_key is None and settings.base_url is None:
        wanted = "set OPENAI_API_KEY or agent.model.api_key_file; for a server of your own set agent.model.base_url"
        raise Misconfigured(f"there is no key for OpenAI: {wanted}")
    try:
        import openai  # see above
    except ImportError as error:
        needed = "pip install 'agentic-loop-nats[openai]'"
        raise Misconfigured(f"agent.model.provider openai needs a package: {needed}") from error
    import httpx2  # only with a client

    from agent_service.models.connection import connection

    return openai.AsyncOpenAI(
        api_key=settings.api_key.get_secret_value() if settings.api_key else NO_KEY,
        base_url=settings.base_url,
        http_client=connection(settings, settings.api_key),
        max_retries=0,
        timeout=httpx2.Timeout(settings.timeout_s, connect=CONNECT_WITHIN_S),
    )


def _broken(error: Exception, question: Question) -> ModelError:
    log.error("a model call broke", exc_info=error, extra={"run_id": question.state.run_id, "call": question.call})
    return ModelError("try_again", "model_broken", f"{type(error).__name__} in the adapter: the agent's log has more")
