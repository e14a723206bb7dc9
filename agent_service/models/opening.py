"""Makes the model of the settings. Only its own SDK is imported: that takes a second of CPU and 50 to 75 MB."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from agent_service.models.settings import ModelSettings
from agent_service.run.ports import Provider
from groundwork.service.errors import Misconfigured
from groundwork.service.program import loaded
from groundwork.service.secret import fault_of, without_login

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_model(settings: ModelSettings) -> AsyncIterator[Provider]:
    """The model of the settings; its connections are closed on leaving. Raises Misconfigured."""
    _check(settings)
    async with _adapter(settings)(settings) as model:
        yield model


def _check(settings: ModelSettings) -> None:
    """A key or address that no request could be sent with would fail in every call, and be quoted in its error."""
    if settings.api_key is not None:
        key = settings.api_key.get_secret_value()
        if fault := fault_of(key):
            raise Misconfigured(f"the key of the model {fault} (agent.model.api_key, or the variable of its provider)")
        if not (key.isascii() and key.isprintable() and key == key.strip()):
            wrong = "has a blank or a line break about it, or a character that no key has"
            raise Misconfigured(
                f"the key of the model {wrong}: correct agent.model.api_key, or the file or variable of it"
            )
    if settings.base_url is not None:
        url = urlsplit(settings.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            shown = without_login(settings.base_url)
            raise Misconfigured(f"agent.model.base_url {shown!r} is not an address: it begins with https://")


def _adapter(settings: ModelSettings) -> Any:
    if settings.provider in ("anthropic", "scripted"):
        return loaded(f"agent_service.models.{settings.provider}_model:opened")
    if settings.model is None:
        raise Misconfigured("provider openai has no default model: set agent.model.model, or agent.llm_model")
    if settings.api_key is None and settings.base_url is None:
        wanted = "set OPENAI_API_KEY or agent.model.api_key_file; for a server of your own set agent.model.base_url"
        raise Misconfigured(f"there is no key for OpenAI: {wanted}")
    try:
        return loaded("agent_service.models.openai_model:opened")
    except ImportError as error:
        needed = "pip install 'agentic-loop-nats[openai]'"
        raise Misconfigured(f"agent.model.provider openai needs a package: {needed}") from error
