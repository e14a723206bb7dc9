"""The HTTP client of a Ductile, and the discovery of its tools and of the scopes of the token."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.policy import Offers
from ductile_gateway.ductile.api import (
    MOST_BYTES,
    AnswerLost,
    DuctileApi,
    DuctileRefused,
    Endpoint,
    NotSent,
    Unavailable,
    UnreadableAnswer,
    open_api,
)
from ductile_gateway.ductile.discovery import check_with, discover_tools
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import ToolChoice
from ductile_gateway.tools.toolbox import await_tools, keep_fresh
from groundwork.service.errors import Misconfigured
from schemas.status import Finding
from tests.ductile.fake import FakeDuctile
from tests.ductile.running import NOWHERE, PIPELINE, settings_for
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import ILLEGAL_NAMES
from tests.gateway.served import Gateway
from tests.kit.http_server import Response
from tests.kit.waiting import beside, until

NEWS: dict[str, Any] = {
    "manifest_spec": "ductile.plugin",
    "manifest_version": 1,
    "name": "news",
    "version": "1.0.0",
    "protocol": 2,
    "entrypoint": "run.py",
    "commands": [{"name": "tell", "type": "read", "input_schema": {"type": "object"}}],
}
UNKNOWN = "a-token-that-nobody-gave"


async def look(ductile: DuctileUnderTest, token: str = "gateway", *, writes: bool = True) -> tuple[Finding, Finding]:  # noqa: S107 - the name of a token
    settings = settings_for(ductile, token=ductile.tokens.get(token, token))
    async with open_api(settings) as api:
        return await check_with(api, settings, writes=writes)


TOKENS = [
    ("gateway", True, "ok", "opens plugins, calls that read, jobs, calls that write, events"),
    ("reader", False, "warning", "may not follow events"),
    ("reader", True, "warning", "does not open calls that write"),
    ("caller", True, "wrong", "does not open jobs"),
    ("nobody", True, "wrong", "nor jobs"),
    ("operator", True, "wrong", "opens far more than tools"),
    ("everything", True, "wrong", "opens far more than tools"),
    (UNKNOWN, True, "wrong", "is not known"),
]


async def test_of_a_ductile_its_place_is_told_and_of_a_token_what_it_lacks_or_has_too_much(
    shared: DuctileUnderTest,
) -> None:
    for token, writes, mark, said in TOKENS:
        found, of_token = await look(shared, token, writes=writes)
        assert (of_token.mark, said in of_token.text) == (mark, True), of_token
        assert (of_token.remedy == "") == (mark == "ok")
        assert (found.mark, shared.url in found.text, "0 jobs" in found.text) == ("ok", True, True)
        assert shared.tokens.get(token, token) not in str((found, of_token)), "a finding shows the token"
        if mark == "wrong":
            with pytest.raises(Misconfigured, match=said):
                await discover_tools(
                    {"probe": ToolChoice()}, settings_for(shared, token=shared.tokens.get(token, token))
                )


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


async def test_a_proxy_that_holds_events_back_is_no_hindrance(fake: FakeDuctile) -> None:
    def proxy(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/events":
            raise httpx2.ReadTimeout("nothing came")
        with httpx2.Client(headers=request.headers, trust_env=False) as client:
            answer = client.request(request.method, str(request.url), content=request.content)
        return httpx2.Response(answer.status_code, content=answer.content)

    async with open_api(settings := settings_for(fake), httpx2.MockTransport(proxy)) as api:
        _, of_token = await check_with(api, settings, writes=True)
    assert of_token.mark == "ok"


async def test_what_is_there_is_discovered_for_the_chosen_tools_alone(shared: DuctileUnderTest) -> None:
    settings = settings_for(shared, idempotent=["probe/note"])
    choices = {"probe": ToolChoice(), "flow": ToolChoice(plugin=PIPELINE), "missing": ToolChoice()}
    found = await discover_tools(choices, settings)
    nothing = await discover_tools(None, settings)
    commands = {command.name: (command.type, command.idempotent) for command in found.manifests["probe"].commands}
    assert commands == {"handle": ("write", False), "look": ("read", False), "note": ("write", True)}
    assert found.manifests.keys() == {"probe", PIPELINE}
    assert found.pipelines == {PIPELINE}
    assert (bool(nothing.manifests), bool(nothing.problems)) == (False, True)


def names(offers: Offers) -> list[str]:
    return [offer.name for offer in offers.catalog.tools]


async def test_a_plugin_that_comes_later_is_on_offer_soon_and_while_ductile_is_away_the_tools_stay(
    fake: FakeDuctile, caplog: pytest.LogCaptureFixture
) -> None:
    told, offers, way = list[Any](), Offers(), {"url": fake.url, "token": fake.token}
    named = {"runner": "ductile", "ductile": way, "tools": ["probe", "news"]}
    settings = GatewaySettings.model_validate(named)
    found = await await_tools(settings)
    assert any("there is no plugin news" in problem for problem in found.problems)
    offers.replace(found.catalog, found.problems)
    async with beside(keep_fresh(settings, offers, told.append, every_s=0.02)):
        assert names(offers) == ["probe"]
        fake.plugin(NEWS)
        await until(lambda: names(offers) == ["news", "probe"])
        assert "news" in told[-1][""].manifests
        assert not offers.problems
        fake.kill()
        with caplog.at_level(logging.WARNING):
            await until(lambda: "the tools stay as they are" in caplog.messages)
        assert names(offers) == ["news", "probe"]


# At the command line


def command(folder: Path, ductile: DuctileUnderTest, *words: str, token: str = "", tools: Any = ("probe",)) -> Any:
    way = {"url": ductile.url, "token": token or ductile.token}
    return Gateway(folder, "nats://127.0.0.1:1", runner="ductile", ductile=way, tools=tools).run(*words)


@pytest.mark.parametrize(
    ("token", "tools", "code", "said"),
    [
        ("gateway", {"probe": None}, 0, "tool probe: plugin probe, handle (write), look (read), note (write)"),
        ("gateway", {"probe": None, "news": None}, 78, "problem: tool news: there is no plugin news"),
        ("caller", {"probe": None}, 78, "does not open jobs"),
    ],
)
def test_check_says_what_there_is_and_what_is_wrong_and_starts_nothing(
    fake: FakeDuctile, tmp_path: Path, token: str, tools: dict[str, Any], code: int, said: str
) -> None:
    checked = command(tmp_path, fake, "check", token=fake.tokens[token], tools=tools)
    assert (checked.returncode, said in checked.stdout + checked.stderr) == (code, True), checked
    assert not fake.executions


def test_a_ductile_that_is_away_is_named_with_where_it_was_looked_for(fake: FakeDuctile, tmp_path: Path) -> None:
    fake.faults.proxied = Response(404, b"<html>another program</html>", "text/html")
    checked = command(tmp_path, fake, "check")
    assert (checked.returncode, f"what answers at {fake.url} is no" in checked.stderr) == (69, True), checked
    fake.kill()
    checked = command(tmp_path, fake, "check")
    assert (checked.returncode, f"nothing answers at {fake.url}" in checked.stderr) == (69, True), checked
    called = command(tmp_path, fake, "call", "probe", "look", "{}")
    assert (called.returncode, fake.url in called.stderr) == (69, True), called


async def test_a_call_is_made_once_and_its_answer_shown(ductile: DuctileUnderTest, tmp_path: Path) -> None:
    shown = await asyncio.to_thread(command, tmp_path, ductile, "call", "probe", "look", '{"do": "answer"}')
    assert (shown.returncode, shown.stdout.startswith("✓ ok after ")) == (0, True), shown
    assert [(made.plugin, made.command) for made in ductile.executions] == [("probe", "look")]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"probe": None}, "tool probe has to begin with the name of its Ductile: home_"),
        ({"other_probe": None}, "tool other_probe has to begin"),
    ],
)
def test_a_tool_of_no_ductile_is_refused(tools: dict[str, object], said: str) -> None:
    way = {"url": "http://127.0.0.1:1", "token": "a-token-of-home"}
    with pytest.raises(ValueError, match=said):
        GatewaySettings.model_validate({"runner": "ductile", "ductiles": {"home": way}, "tools": tools})


JOB, LOOK = {"job_id": "j-1"}, Endpoint.CALL.path_of("probe", "look")
TOKEN = NOWHERE.token.get_secret_value()
STARTS: list[tuple[httpx2.Response | Exception, type[Exception]]] = [
    *((error("x"), NotSent) for error in (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)),
    *(
        (error("x"), AnswerLost)
        for error in (httpx2.ReadError, httpx2.ReadTimeout, httpx2.WriteError, httpx2.WriteTimeout)
    ),
    (httpx2.RemoteProtocolError("x"), AnswerLost),
    (httpx2.Response(500, json={"error": "failed to enqueue job"}), AnswerLost),
    (httpx2.Response(503), AnswerLost),
    (httpx2.Response(200, json=JOB), AnswerLost),
    (httpx2.Response(202), AnswerLost),
    (httpx2.Response(202, text="[" * 100_000), AnswerLost),
    *((httpx2.Response(202, json=odd), AnswerLost) for odd in ({"job_id": 7}, {"job_id": "../x"}, ["j-1"])),
    (httpx2.Response(307, headers={"location": "http://elsewhere/"}), AnswerLost),
    (httpx2.Response(202, content=b"x" * (MOST_BYTES + 1)), AnswerLost),
    (
        httpx2.Response(400, json={"error": "root baggage claims failed: \n\x1b[31m" + TOKEN + "x" * 5000}),
        DuctileRefused,
    ),
]


def api_that(answers: httpx2.Response | Exception) -> AbstractAsyncContextManager[DuctileApi]:

    def told(_: httpx2.Request) -> httpx2.Response:
        if isinstance(answers, Exception):
            raise answers
        return answers

    return open_api(NOWHERE, httpx2.MockTransport(told))


async def test_a_start_was_not_sent_or_refused_or_is_lost_unless_the_answer_has_the_id_of_a_job() -> None:
    for answer, error in STARTS:
        async with api_that(answer) as api:
            with pytest.raises(error) as caught:
                await api.start(LOOK, {})
        assert caught.type is error, answer
    assert str(caught.value).startswith("Ductile answered 400")
    assert (str(caught.value).isprintable(), TOKEN in str(caught.value)) == (True, False), "a line could be forged"
    assert len(str(caught.value)) < 400


async def test_a_connection_that_fails_says_why() -> None:
    async with api_that(httpx2.ConnectError("certificate verify failed: self-signed certificate")) as api:
        for ask in (api.start(LOOK, {}), api.skills()):
            with pytest.raises((NotSent, Unavailable), match="self-signed certificate"):
                await ask


@pytest.mark.attack(64)
async def test_what_a_proxy_repeats_of_a_request_is_told_without_the_token() -> None:
    for status in (403, 502):
        async with api_that(httpx2.Response(status, text="x" * 290 + "Authorization: Bearer token-of-mine")) as api:
            with pytest.raises(AnswerLost) as caught:
                await api.start(LOOK, {})
            assert "token" not in str(caught.value)
            with pytest.raises(Unavailable) as refused:
                await api.jobs(plugin="probe", command="look", most=1)
            assert "token" not in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"x" * (MOST_BYTES + 1)])
async def test_a_job_that_cannot_be_told_is_unreadable(body: bytes) -> None:
    async with api_that(httpx2.Response(200, content=body)) as api:
        with pytest.raises(UnreadableAnswer):
            await api.job("j-1")


@pytest.mark.parametrize("ask", [lambda api: api.job("j-1"), lambda api: api.plugin("probe")], ids=["job", "plugin"])
async def test_only_ductile_itself_says_that_it_knows_no_such_thing(ask: Callable[[DuctileApi], Any]) -> None:
    for words in ("job not found", "plugin not found"):
        async with api_that(httpx2.Response(404, json={"error": words})) as api:
            assert await ask(api) is None
    async with api_that(httpx2.Response(404, text="not here")) as api:
        with pytest.raises(Unavailable) as caught:
            await ask(api)
        assert caught.type is Unavailable, "it would be refused for good"


async def test_what_is_no_id_and_no_name_never_reaches_a_url() -> None:
    async with api_that(AssertionError("it was asked")) as api:
        for job_id in ("", "../x", "a/b", "a?b", "a" * 65, "j\n"):
            for ask in (api.job(job_id), api.tree(job_id)):
                with pytest.raises(Unavailable):
                    await ask
        for name in ILLEGAL_NAMES:
            for endpoint, names in ((Endpoint.PLUGIN, [name]), (Endpoint.CALL, ["probe", name])):
                with pytest.raises(DuctileRefused, match="not a legal name"):
                    endpoint.path_of(*names)
