"""`agentic doctor` on the model: the real SDKs against fakes of their APIs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_service.cli.doctor.model import model
from agent_service.models.settings import ModelSettings, PhaseSettings
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.wire import KEY


@pytest.fixture
def api() -> Iterator[FakeAnthropic]:
    fake = FakeAnthropic()
    yield fake
    fake.close()


def claude(api: FakeAnthropic, key: str | None = KEY, **settings: object) -> ModelSettings:
    given = {"provider": "anthropic", "base_url": api.base_url, **settings}
    return ModelSettings.model_validate({**given, "api_key": SecretStr(key) if key else None})


async def test_a_good_key_and_a_known_model_are_well(api: FakeAnthropic) -> None:
    check = await model(claude(api))
    assert (check.mark, check.text) == ("ok", "anthropic: claude-sonnet-5-5, which the provider knows")
    assert not api.requests, "nothing that costs was asked"


async def test_every_model_of_every_phase_is_asked_for(api: FakeAnthropic) -> None:
    check = await model(claude(api, phases={"compact": PhaseSettings(model="claude-haiku-9")}))
    assert check.mark == "wrong"
    assert "claude-haiku-9" in check.text
    assert "404" in check.text


async def test_a_wrong_key_is_told_without_showing_it(api: FakeAnthropic) -> None:
    check = await model(claude(api, key="sk-test-of-somebody-else"))
    assert check.mark == "wrong"
    assert "401" in check.text
    assert "somebody" not in f"{check.text} {check.remedy}"


async def test_no_key_names_the_variable_that_holds_one(api: FakeAnthropic) -> None:
    check = await model(claude(api, key=None))
    assert check.mark == "wrong"
    assert "ANTHROPIC_API_KEY" in check.text


async def test_a_provider_that_is_away_is_a_warning_as_runs_wait_for_it(api: FakeAnthropic) -> None:
    settings = claude(api)
    api.close()
    check = await model(settings)
    assert check.mark == "warning"
    assert "runs wait" in check.remedy


async def test_a_script_that_no_run_could_use_is_told_with_its_rule(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        "name: small\nrules:\n  - {phase: plan, plan: {action: {tool: echo, command: handle, arguments: {on: 1}}}}\n"
    )
    check = await model(ModelSettings(provider="scripted", script=script))
    assert check.mark == "wrong"
    assert "rules.0.plan.action.arguments" in check.text
    assert "put it in quotes" in check.text
