"""`agentic doctor` on the model: the real SDKs against fakes of their APIs."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from agent_service.cli.doctor.machine import model
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


@pytest.mark.parametrize(
    ("key", "settings", "told"),
    [
        (KEY, {"phases": {"compact": PhaseSettings(model="claude-haiku-9")}}, ("claude-haiku-9", "404")),
        ("sk-test-of-somebody-else", {}, ("401",)),
        (None, {}, ("ANTHROPIC_API_KEY",)),
    ],
    ids=["an unknown model of one phase", "a wrong key", "no key"],
)
async def test_what_is_wrong_is_told_and_no_key_shown(
    api: FakeAnthropic, key: str | None, settings: dict[str, Any], told: tuple[str, ...]
) -> None:
    check = await model(claude(api, key, **settings))
    assert check.mark == "wrong"
    assert all(part in check.text for part in told)
    assert "somebody" not in f"{check.text} {check.remedy}"
