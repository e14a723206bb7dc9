"""Which model thinks: what it needs is said at the start, and what it does not need is not loaded."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_service.errors import Misconfigured
from agent_service.models.opening import open_model
from agent_service.models.settings import ModelSettings
from agent_service.settings import load
from tests.models.fake_anthropic import serve
from tests.models.model_house import OPENING, framing
from tests.models.wire import KEY

HEAVY = {"anthropic", "openai", "genai_prices", "jinja2"}
LOADED = "print(*sorted({name.split('.')[0] for name in sys.modules}))"
HELP = """
import sys
from agent_service.__main__ import main
sys.argv = ["agentic", "--help"]
try:
    main()
except SystemExit:
    pass
"""
CLOUDS = {"AWS_REGION": "eu-central-1", "CLOUD_ML_REGION": "global", "ANTHROPIC_VERTEX_PROJECT_ID": "p"}


async def opened(**settings: Any) -> None:
    async with open_model(ModelSettings.model_validate({"provider": "anthropic", **settings})):
        pass


@pytest.mark.parametrize(
    "told",
    [
        "import sys, agent_service.cli.main",
        "import sys, agent_service.app, agent_service.models.opening",
        HELP,
    ],
    ids=["the commands", "the service", "--help"],
)
def test_who_asks_no_model_loads_none(told: str) -> None:
    run = [sys.executable, "-c", f"{told}\n{LOADED}"]
    ran = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60, cwd=Path(__file__).parents[2])
    loaded = set(ran.stdout.splitlines()[-1].split())
    assert "agent_service" in loaded
    assert not HEAVY & loaded


async def test_without_a_key_claude_is_not_opened() -> None:
    with pytest.raises(Misconfigured, match=r"set ANTHROPIC_API_KEY, or agent\.model\.api_key_file"):
        await opened()


def test_the_key_comes_from_the_environment_and_is_not_shown() -> None:
    settings = load(None, {"AGENT_MODEL__PROVIDER": "anthropic", "ANTHROPIC_API_KEY": KEY})
    assert settings.model.api_key == SecretStr(KEY)
    assert KEY in settings.secrets()
    assert KEY not in f"{settings!r} {settings} {settings.model.model_dump()}"


@pytest.mark.parametrize("key", ["", " ", f"{KEY}\n", f" {KEY}", f"{KEY}\r\nx-evil: 1", f"{KEY}\0", f"“{KEY}”"])
async def test_a_key_that_cannot_be_sent_is_refused_and_not_quoted(key: str) -> None:
    with pytest.raises(Misconfigured, match="the key of the model") as caught:
        await opened(api_key=key)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:8080", "ftp://claude.example", "claude.example", "http://", ""])
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(Misconfigured, match=r"agent\.model\.base_url"):
        await opened(api_key=KEY, base_url=address)


async def test_the_key_given_goes_before_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a third")
    async with serve() as claude:
        claude.answer(OPENING)
        await claude.model.prepare(framing()).make()


@pytest.mark.parametrize("platform", ["bedrock", "vertex"])
async def test_a_cloud_says_what_it_misses(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CLOUDS, "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Misconfigured, match=rf"agent\.model\.platform {platform}: .*[Rr]egion"):
        await opened(platform=platform)


@pytest.mark.parametrize(("platform", "package"), [("bedrock", "botocore"), ("vertex", "google.auth")])
async def test_a_cloud_says_which_package_it_needs(
    platform: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CLOUDS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    if package in sys.modules or _installed(package):
        await opened(platform=platform)
        return
    with pytest.raises(Misconfigured, match=rf"pip install 'anthropic\[{platform}\]'"):
        await opened(platform=platform)


async def test_bedrock_with_a_key_of_its_own_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", CLOUDS["AWS_REGION"])
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    await opened(platform="bedrock")


def _installed(package: str) -> bool:
    ran = subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False, env=os.environ)
    return ran.returncode == 0
