"""What is found of a Ductile and of the token for it, without changing anything there."""

import pytest

from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.discovery import look_at
from schemas.status import Finding
from tests.ductile.fake import FakeDuctile
from tests.ductile.runner_house import settings_for
from tests.ductile.under_test import DuctileUnderTest


async def look(ductile: DuctileUnderTest, token: str = "gateway", *, writes: bool = True) -> tuple[Finding, Finding]:  # noqa: S107 - the name of a token
    settings = settings_for(ductile, token=ductile.tokens.get(token, token))
    async with open_api(settings) as api:
        return await look_at(api, settings, writes=writes)


async def test_of_a_ductile_its_version_place_and_queue_are_told(ductile: DuctileUnderTest) -> None:
    found, token = await look(ductile)
    assert found.mark == token.mark == "ok", (found, token)
    assert ductile.url in found.text
    assert "0 jobs" in found.text


@pytest.mark.parametrize(
    ("token", "writes", "mark", "said"),
    [
        ("gateway", True, "ok", "opens plugins, calls that read, jobs, calls that write, events"),
        ("reader", False, "warning", "may not follow events"),
        ("reader", True, "warning", "does not open calls that write"),
        ("caller", True, "wrong", "does not open jobs"),
        ("nobody", True, "wrong", "nor jobs"),
        ("operator", True, "wrong", "opens far more than tools"),
        ("everything", True, "wrong", "opens far more than tools"),
        ("a-token-that-nobody-gave", True, "wrong", "is not known"),
    ],
)
async def test_of_a_token_is_told_what_it_lacks_or_has_too_much(
    ductile: DuctileUnderTest, token: str, writes: bool, mark: str, said: str
) -> None:
    _, found = await look(ductile, token, writes=writes)
    assert (found.mark, said in found.text) == (mark, True), found
    assert (found.remedy == "") == (mark == "ok")


@pytest.mark.parametrize(
    ("scopes", "mark", "said"),
    [
        (("plugin:ro", "jobs:ro"), "wrong", "plugin:invoke:ro"),
        (("plugin:invoke:ro", "jobs:ro"), "wrong", "plugin:catalog:ro"),
        (("plugin:ro", "plugin:invoke:ro", "jobs:status:ro"), "warning", "jobs:logs:ro, jobs:ro or jobs:tree:ro"),
        (("plugin:ro", "plugin:invoke:ro", "jobs:ro"), "warning", "events:ro"),
        (("plugin:ro", "plugin:invoke:ro", "jobs:ro", "events:meta:ro"), "ok", ""),
    ],
)
async def test_of_the_narrower_scopes_of_the_newer_version_those_that_lack_are_named(
    scopes: tuple[str, ...], mark: str, said: str
) -> None:
    with FakeDuctile(version="N", tokens={"gateway": scopes}) as newer:
        _, found = await look(newer, writes=False)
    assert (found.mark, said in found.remedy) == (mark, True), found


async def test_a_ductile_that_is_away_is_told_apart_from_a_bad_token(fake: FakeDuctile) -> None:
    fake.kill()
    with pytest.raises(Away):
        await look(fake)


async def test_no_finding_shows_the_token(ductile: DuctileUnderTest) -> None:
    for token in (*ductile.tokens, "a-token-that-nobody-gave"):
        shown = str(await look(ductile, token))
        assert ductile.tokens.get(token, token) not in shown
