"""The choice of a model by the file, the environment and the names of RFC-95, and errors."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_service.errors import ModelError
from agent_service.models.settings import ModelSettings, open_model
from agent_service.settings import load
from groundwork.service import json_log
from groundwork.service.errors import Misconfigured
from tests.kit.http_server import Response
from tests.kit.logs import logging_kept
from tests.models import fake_openai
from tests.models.fake_anthropic import serve
from tests.models.model_house import OPENING, framing
from tests.models.wire import KEY

CHOSEN = {"AGENT_LLM_PROVIDER": "openai", "AGENT_LLM_MODEL": "gpt-5.4"}


async def opened(**settings: object) -> None:
    async with open_model(ModelSettings.model_validate({"provider": "anthropic", **settings})):
        pass


def test_the_names_of_rfc_95_choose_the_model_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agentic.yaml"
    file.write_text("agent:\n  llm_provider: openai\n  llm_model: gpt-5.4\n  model: {effort: low}\n", encoding="utf-8")
    model = load(file, {}).model
    assert (model.provider, model.model, model.effort) == ("openai", "gpt-5.4", "low")


def test_the_key_of_one_provider_goes_to_no_other(tmp_path: Path) -> None:
    file, of_openai = tmp_path / "agentic.yaml", {"OPENAI_API_KEY": "sk-of-openai"}
    for in_file, environment, key in (
        ("{provider: anthropic, api_key: sk-of-anthropic}", of_openai, "sk-of-openai"),
        ("{provider: anthropic, api_key: sk-of-anthropic}", {}, None),
        ("{api_key: sk-of-file}", {}, "sk-of-file"),
        ("{provider: scripted, api_key: sk-of-file}", {}, "sk-of-file"),
        ("{provider: anthropic}", {"AGENT_MODEL__API_KEY": "sk-of-openai"}, "sk-of-openai"),
        ("{api_key: sk-of-file}", of_openai, "sk-of-file"),
        ("{}", {"ANTHROPIC_API_KEY": "sk-of-anthropic"}, None),
    ):
        file.write_text(f"agent:\n  model: {in_file}\n", encoding="utf-8")
        found = load(file, {**CHOSEN, **environment}).model.api_key
        assert (found.get_secret_value() if found else None) == key, (in_file, environment)


def test_the_key_appears_in_no_log_line_and_in_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    settings = load(None, {**CHOSEN, "OPENAI_API_KEY": KEY})
    assert KEY in settings.secrets()
    with logging_kept():
        json_log.set_up("INFO", "json", redact=settings.secrets())
        logging.getLogger("a.part").info("refused: Bearer %s", KEY, extra={"settings": settings, "key": KEY})
    line = capsys.readouterr().err
    assert "refused: Bearer ***" in line
    assert KEY not in line
    assert KEY not in repr(settings)


async def test_what_is_missing_is_named() -> None:
    for settings, told in (
        ({"provider": "openai", "api_key": KEY}, "agent.model.model"),
        ({"provider": "openai", "model": "gpt-5.4"}, "OPENAI_API_KEY.*agent.model.base_url"),
        ({"provider": "anthropic"}, "ANTHROPIC_API_KEY"),
    ):
        with pytest.raises(Misconfigured, match=told):
            await opened(**settings)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_an_address_that_no_request_can_go_to_is_named_without_its_login(provider: str) -> None:
    for address in (
        "http://[::1",
        "http://u:secret@host:abc/v1",
        "http://host:99999",
        "http://192.168.1.300:11434",
        "host:80",
        "https://x\n.example",
    ):
        with pytest.raises(Misconfigured, match=r"agent\.model\.base_url .* is not an address") as caught:
            await opened(provider=provider, model="m", api_key=KEY, base_url=address)
        assert "secret" not in str(caught.value)
    for proxy, told in (("http://:::/", "is not an address"), ("socks5://host:1", "pip install socksio")):
        with pytest.raises(Misconfigured, match=rf"agent\.model\.proxy .*{told}"):
            await opened(provider=provider, model="m", api_key=KEY, proxy=proxy)


@pytest.mark.parametrize("key", ["", " ", f"{KEY}\n", f" {KEY}", f"{KEY}\r\nx-evil: 1", f"{KEY}\0", f"“{KEY}”"])
async def test_a_key_that_cannot_be_sent_is_refused_and_not_quoted(key: str) -> None:
    with pytest.raises(Misconfigured, match="the key of the model") as caught:
        await opened(api_key=SecretStr(key))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_key_does_not_go_over_plain_http_to_another_machine(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {"provider": provider, "model": "m", "api_key": KEY, "base_url": "http://models.example/v1"}
    with pytest.raises(Misconfigured, match=r"models\.example.*plain http.*allow_http_nonloopback"):
        await opened(**elsewhere)
    await opened(**elsewhere | {"allow_http_nonloopback": True})
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "http://models.example")
    with pytest.raises(Misconfigured, match="plain http"):
        await opened(provider=provider, model="m", api_key=KEY)


@pytest.mark.parametrize("serving", [serve, fake_openai.serve])
async def test_a_request_is_signed_with_the_key_of_the_settings_whatever_headers_the_environment_adds(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{provider}_CUSTOM_HEADERS", "authorization: Bearer of-another-account")
    async with serving() as served:
        served.fake.answer(OPENING)
        await served.model.prepare(framing()).make()
        assert [call.headers["authorization"] for call in served.fake.calls] == [f"Bearer {KEY}"]


@pytest.mark.parametrize("asked_for", [{}, {"proxy": "environment"}, {"proxy": "http://127.0.0.1:9"}], ids=str)
async def test_a_proxy_sees_calls_only_where_it_is_asked_for(
    asked_for: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with serve(**asked_for) as claude:
        claude.fake.answer(OPENING)
        calling = claude.model.prepare(framing()).make()
        if asked_for:
            with pytest.raises(ModelError, match="no connection"):
                await calling
        else:
            await calling
        assert len(claude.fake.calls) == (not asked_for)


async def test_a_server_that_sends_elsewhere_is_not_followed() -> None:
    async with serve() as elsewhere, serve() as claude:
        claude.fake.send(Response(status=307, headers={"Location": f"{elsewhere.fake.base_url}/v1/messages"}))
        with pytest.raises(ModelError):
            await claude.model.prepare(framing()).make()
        assert not elsewhere.fake.calls
