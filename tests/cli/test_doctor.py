"""`agentic doctor`: finding and remedy for each condition; the checks change nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.topology import topology
from agent_service.cli.doctor import report
from agent_service.cli.doctor.bus import clock, replicas, room
from agent_service.cli.doctor.report import INDENT, run_checks, settings_in_force
from agent_service.models.settings import ModelSettings, PhaseSettings
from agent_service.settings import load
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import set_up
from schemas import subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.status import Finding
from tests.cli.invoke import agentic, agentic_here, called, interrupt, started
from tests.cli.stores import ITS_PASSWORD, NOWHERE, configured, found, up
from tests.kit.bus import server_with
from tests.models.fake_anthropic import FakeAnthropic
from tests.models.wire import KEY

STATUS = Path(__file__).parents[2] / "schemas" / "samples" / "ductile-gateway.status.v1.json"
Wanted = tuple[str, str, str]
"""Mark of a finding, and parts of its text and of its remedy."""


def misses(check: Finding | None, wanted: Wanted) -> list[str]:
    mark, text, remedy = wanted
    if check and (check.mark, text in check.text, remedy in check.remedy) == (mark, True, True):
        return []
    return [f"{wanted}: {check}"]


def copies(*late: dict[str, Any], leader: str | None = "n1") -> Finding:
    known = [{"name": "n2", "current": True}, *({"name": "n3", "current": False} | copy for copy in late)]
    stream = {"config": {"name": "AGENTIC_REQUESTS"}, "cluster": {"leader": leader, "replicas": known}}
    return replicas([stream])


def stream(taken: int, most: int, discard: str) -> Finding:
    config = {"name": "OBJ_agentic-artifacts", "max_bytes": most, "discard": discard}
    return room([{"config": config, "state": {"bytes": taken}}])


JUDGED: list[tuple[Finding, Wanted]] = [
    (clock(timedelta(seconds=-3)), ("ok", "within", "")),
    (clock(timedelta(minutes=2)), ("warning", "2:00 ahead of", "")),
    (clock(timedelta(hours=-1)), ("warning", "1:00:00 behind", "")),
    (copies({"lag": 1805}), ("warning", "AGENTIC_REQUESTS on n3 is 1805 behind", "restart those behind")),
    (copies(*[{"offline": True}] * 5), ("warning", "n3 is away, and 2 more: with one server more", "")),
    (stream(80, 100, "new"), ("warning", "is 80 % full", "--change")),
    (stream(100, 100, "old"), ("ok", "", "")),
    (stream(100, -1, "new"), ("ok", "", "")),
    (copies({}, leader=None), ("wrong", "no server leads AGENTIC_REQUESTS", "copies are damaged: restart them")),
]


def test_what_is_read_of_a_bus_is_judged() -> None:
    assert [miss for check, wanted in JUDGED for miss in misses(check, wanted)] == []


ON_THIS_MACHINE: list[tuple[dict[str, Any], str, str]] = [
    ({"model": {"script": "/nowhere.yaml"}}, "model", "/nowhere.yaml"),
    ({"store": "/dev/null/agent"}, "store", "is not a folder"),
    ({"store": "x" * 300}, "store", "File name too long"),
    ({"http": {"host": "192.0.2.1", "port": 0}}, "tokens", "configure `agent.http.tokens`"),
    ({"http": {"port": 0, "tokens": [{"name": "a", "token": "too-short"}]}}, "tokens", "at least 16 characters"),
    ({"http": {"port": 0, "tokens": [{"name": "a"}]}}, "tokens", "either `token` or `sha256`"),
]


async def test_what_is_wrong_on_this_machine_is_named_with_the_remedy(tmp_path: Path) -> None:
    for agent, name, says in ON_THIS_MACHINE:
        settings = load(configured(tmp_path, **agent), {})
        checks = [check async for check in report.machine_checks(settings, None)]
        (check,) = [check for check in (*checks, await report.model(settings.model)) if check.name == name]
        assert (check.mark, says in check.text, bool(check.remedy)) == ("wrong", True, True), check


async def test_without_a_bus_the_rest_is_checked_within_five_seconds_and_no_file_is_made(tmp_path: Path) -> None:
    async with asyncio.timeout(5.0):
        checks = await found(configured(tmp_path))
    well = ("configuration", "store", "database", "workspaces", "model", "tokens")
    assert {name: check.mark for name, check in checks.items()} == {
        **dict.fromkeys(well, "ok"),
        "nats": "wrong",
        "http": "warning",
    }
    assert misses(checks["nats"], ("wrong", NOWHERE, "agentic dev")) == []
    assert list(await asyncio.to_thread(tmp_path.iterdir)) == [tmp_path / "agentic.yaml"]


async def test_every_problem_of_the_configuration_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "agentic.yaml"
    file.write_text("agent: {stor: x, http: {port: 99999}}\nnats: {password: [hunter2hunter2]}\n")
    wrong = [check async for check in run_checks(file) if check.mark == "wrong"]
    assert [check.name for check in wrong] == ["configuration"] * 3
    assert "hunter2" not in str(wrong)


async def test_the_section_of_the_gateway_is_checked_by_the_gateway(tmp_path: Path) -> None:
    nowhere = {"url": "http://127.0.0.1:1", "token": "${NOWHERE}"}
    for section, mark, says in (
        ({"runner": "plugins"}, "ok", "can be used"),
        ({"runner": "ductile", "ductile": nowhere}, "wrong", "NOWHERE"),
    ):
        config = configured(tmp_path)
        config.write_text(json.dumps(json.loads(config.read_text()) | {"gateway": section}))
        (check,) = [check async for check in report.gateway_section(config)]
        assert misses(check, (mark, says, "")) == []


async def test_a_section_that_takes_for_ever_to_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path)
    config.write_text(json.dumps({"gateway": {}}))
    monkeypatch.setattr(report, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(report, "own_command", lambda *_: ["sleep", "600"])
    (check,) = [check async for check in report.gateway_section(config)]
    assert misses(check, ("warning", "not read within 0.05 s", "ductile-gateway check")) == []


def answering(subject: str, body: bytes) -> Callable[[NatsLink], Awaitable[None]]:

    async def listen(link: NatsLink) -> None:
        async def answer(message: Any) -> None:
            await message.respond(body)

        await link.subscribe(subject, answer)

    return listen


async def bury(link: NatsLink) -> None:
    said = {"Dead-Letter-Subject": subjects.START}
    await link.publish(subjects.DEAD_LETTERS_LOOP, b"{}", msg_id="dead", headers=said)


async def dig_up(link: NatsLink) -> None:
    letters = NatsDeadLetters(link)
    await letters.drop((await letters.all())[0].id, "somebody")


ECHO = ToolOffer(name="echo", route="echo", commands=(ToolCommand(name="handle", tier="read"),))
ON_THE_BUS: list[tuple[Callable[[NatsLink], Awaitable[None]] | None, dict[str, Any], dict[str, Wanted]]] = [
    (None, {}, {"streams": ("ok", "", ""), "dead letters": ("ok", "", ""), "tools": ("wrong", "", "serve")}),
    (
        answering(subjects.CATALOG, Catalog(revision="1", tools=(ECHO,)).model_dump_json().encode()),
        {"tools": ["echo", "browse"]},
        {"tools": ("warning", "browse", "")},
    ),
    (None, {}, {"tools": ("ok", "1 tool: echo (read)", "")}),
    (
        answering(subjects.STATUS, STATUS.read_bytes()),
        {},
        {"gateway": ("ok", "0.1.0 offers 4 tools, 2 calls in hand", ""), "ductile": ("warning", "620 jobs", "")},
    ),
    (bury, {}, {"dead letters": ("warning", "the newest on agentic.start", "")}),
    (dig_up, {}, {"dead letters": ("ok", "", "")}),
]


async def test_what_is_wrong_on_the_bus_is_told_with_the_remedy_until_it_is_mended(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    bare = await found(configured(tmp_path, nats_server.url))
    assert {bare[name].mark for name in ("nats", "jetstream", "permissions", "clock")} == {"ok"}
    assert misses(bare["streams"], ("wrong", "stream AGENTIC", "agentic setup")) == []
    assert f"and {len(topology(max_gib=1)) - 3} more" in bare["streams"].text
    assert bare["tools"].mark == "wrong"
    await set_up(link, topology(max_gib=1))
    for change, agent, wanted in ON_THE_BUS:
        if change:
            await change(link)
        checks = await found(configured(tmp_path, nats_server.url, **agent))
        assert [miss for name, told in wanted.items() for miss in misses(checks.get(name), told)] == [], change


async def test_it_is_shown_who_owns_the_bus_and_a_stranger_there_or_on_the_port_is_told(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink, unused_port: int
) -> None:
    await set_up(link, topology(max_gib=1))
    (tmp_path / "other").mkdir()
    http = {"port": unused_port}
    config = configured(tmp_path, nats_server.url, http=http)
    stranger = configured(tmp_path / "other", nats_server.url, http=http)
    unowned = await found(config)
    with started("serve", "--config", config) as agent:
        assert agent.stderr
        next(line for line in agent.stderr if '"ready"' in line)
        owned, strange = await found(config), await found(stranger)
        interrupt(agent)
        agent.wait()
    free = (await found(config))["agent lease"]
    assert {unowned[f"{name} lease"].text for name in ("agent", "gateway")} == {"not held by any process yet"}
    assert misses(owned["agent lease"], ("ok", f"process {agent.pid} on ", "")) == []
    assert ("epoch 1" in owned["agent lease"].text, "has another store" in owned["http"].text) == (True, False)
    assert misses(strange["agent lease"], ("warning", "", "agentic serve --take-over")) == []
    assert misses(strange["http"], ("wrong", "not the one that is configured here", "")) == []
    assert free.text.startswith("free: given back ")


USERS: dict[str, Any] = {"users": [{"user": "agent", "password": ITS_PASSWORD}]}
MAY = {"publish": {"allow": [">"], "deny": ["agent.completed", "agentic.tool_request.*"]}, "subscribe": ">"}
LIMITED: dict[str, Any] = {"users": [USERS["users"][0] | {"permissions": MAY}]}
NOT_ALLOWED = "may not publish agentic.tool_request.x, agent.completed"
LOGINS: list[tuple[dict[str, Any], str, str, Wanted]] = [
    ({"authorization": LIMITED}, f"agent:{ITS_PASSWORD}@", "permissions", ("wrong", NOT_ALLOWED, "")),
    ({"authorization": LIMITED}, f"agent:{ITS_PASSWORD}@", "login", ("ok", "", "")),
    ({}, "", "login", ("warning", "without a login", "deploy/nats/prepare.py")),
    ({"authorization": USERS, "no_auth_user": "agent"}, f"agent:{ITS_PASSWORD}@", "login", ("warning", "", "")),
    ({"authorization": USERS}, "agent:wrong-password@", "nats", ("wrong", "login is refused", "")),
]


@pytest.mark.parametrize(
    ("server", "login", "name", "wanted"), LOGINS, ids=["denied", "fine", "open", "guest", "wrong"]
)
async def test_what_a_login_may_and_whether_a_bus_lets_in_anybody_is_told_and_no_password(
    tmp_path: Path, unused_port: int, server: dict[str, Any], login: str, name: str, wanted: Wanted
) -> None:
    async with server_with(tmp_path, unused_port, server | {"jetstream": {"store_dir": str(tmp_path / "js")}}) as bus:
        await up(bus)
        config = configured(tmp_path, f"nats://{login}{bus}")
        checks = await found(config)
        commands = ("doctor", "setup") if wanted[0] == "wrong" and name == "nats" else ("doctor",)
        told = {command: await called(command, "--config", config) for command in commands}
        if name == "nats":
            told["serve"] = await asyncio.to_thread(agentic, "serve", "--config", config)
    assert misses(checks[name], wanted) == []
    assert told["doctor"].code == (wanted[0] == "wrong" or name == "login")  # without streams something is wrong
    assert [command for command in told if command != "doctor" and told[command].code != 78] == []
    said = str(checks) + str(told)
    assert "start one with" not in said.lower()
    assert (ITS_PASSWORD in said, "wrong-password" in said) == (False, False)


def test_a_finding_hangs_beneath_its_own_column_on_a_terminal_and_is_one_line_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "agentic.yaml").write_text("agent: {http: {port: abc}}")
    piped = agentic_here("doctor", cwd=tmp_path, COLUMNS="60")
    (line,) = piped.out.splitlines()
    shown = agentic_here("doctor", cwd=tmp_path, COLUMNS="60", FORCE_COLOR="1", TERM="dumb")
    first, *more = shown.out.splitlines()
    assert more
    assert {text[:INDENT].strip() for text in more} == {""}
    assert " ".join([first.strip(), *map(str.strip, more)]) == line


async def test_a_password_in_the_address_of_the_bus_is_never_shown(tmp_path: Path, unused_port: int) -> None:
    server = {"authorization": USERS, "jetstream": {"store_dir": str(tmp_path / "js")}}
    async with server_with(tmp_path, unused_port, server) as address:
        config = configured(tmp_path, f"nats://agent:{ITS_PASSWORD}@{address}")
        await up(address)
        said = str(await called("setup", "--config", config))
        with started("serve", "--config", config) as agent:
            assert agent.stderr
            said += (ready := next(line for line in agent.stderr if '"ready"' in line))
            said += httpx2.get(f"{json.loads(ready)['http']}/readyz", trust_env=False, timeout=30.0).text
            interrupt(agent)
            said += agent.stderr.read()
        said += str(await called("doctor", "--config", config)) + str(
            await called("doctor", "--settings", "--config", config)
        )
    assert json.loads(ready)["nats"] == f"nats://{address}"
    assert (address in said, ITS_PASSWORD in said) == (True, False)


@pytest.mark.attack(107)
def test_what_goes_to_another_machine_in_the_clear_is_known() -> None:
    for urls, hosts in (
        (("nats://bus.example.org:4222", "nats://127.0.0.1:4222"), ("bus.example.org",)),
        (("10.0.0.7:4222",), ("10.0.0.7",)),
        (("tls://bus.example.org:4222",), ()),
        (("nats://localhost", "nats://[::1]:4222"), ()),
    ):
        assert NatsSettings(urls=urls).plaintext_hosts == hosts


ONE = "one-secret-for-two-doors"
HOOK = {"scheme": "ductile", "keys": [{"secret": ONE}], "events": {"*": {"to": "agentic.start", "goal": "x"}}}
PEERS = {"peers": {"home": {"keys": [{"id": "v1", "secret": ONE}]}}}
OPS = {"http": {"tokens": [{"name": "ops", "token": ONE}]}}
RELAY = {"relay": {"secret": ONE}}
DOORS: list[tuple[dict[str, Any], str]] = [
    (
        {"gateway": {"ingress": {"webhooks": {"cms": HOOK}}, "outbound": RELAY}},
        "gateway.ingress.webhooks.cms.keys.0.secret and gateway.outbound.relay.secret",
    ),
    ({"agent": OPS, "nats": {"password": ONE}}, "agent.http.tokens.0.token and nats.password"),
    ({"agent": OPS, "gateway": {"plugins": {"config": {"agentic-wake": {"token": ONE}}}}}, ""),
    ({"gateway": {"ductile": RELAY, "outbound": RELAY}}, ""),
    ({"gateway": {"ingress": PEERS, "outbound": RELAY}}, ""),
    ({"gateway": {"ingress": PEERS, "outbound": {"relays": {"home": {"secret": ONE}}}}}, ""),
]


async def test_secrets_that_open_two_doors_are_told_and_not_shown(tmp_path: Path) -> None:
    here, file = load(configured(tmp_path), {}), tmp_path / "doors.yaml"
    for settings, told in DOORS:
        file.write_text(json.dumps(settings))
        lines = [check.text async for check in report.machine_checks(here, file) if check.name == "secrets"]
        assert lines == ([f"{told} are the same secret"] if told else []), settings


def test_the_settings_in_force_show_no_login_of_an_address(tmp_path: Path) -> None:
    file = tmp_path / "agentic.yaml"
    told = '"http://me:my-password@127.0.0.1:1"'
    ours = f"{{model: {{base_url: {told}, proxy: {told}}}, telemetry: {{endpoint: {told}, proxy: {told}}}}}"
    file.write_text(f"agent: {ours}\n")
    whole, text = settings_in_force(file)
    assert "my-password" not in text + json.dumps(whole)
    assert whole["agent"]["model"]["proxy"] == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("key", "settings", "wanted"),
    [
        (KEY, {}, ("ok", "anthropic: claude-sonnet-5-5, which the provider knows", "")),
        (KEY, {"phases": {"compact": PhaseSettings(model="claude-haiku-9")}}, ("wrong", "claude-haiku-9", "")),
        ("sk-test-of-somebody-else", {}, ("wrong", "401", "")),
        (None, {}, ("wrong", "ANTHROPIC_API_KEY", "")),
    ],
    ids=["well", "an unknown model of one phase", "a wrong key", "no key"],
)
async def test_a_model_is_asked_whether_it_is_there_without_a_cost_and_no_key_is_shown(
    key: str | None, settings: dict[str, Any], wanted: Wanted
) -> None:
    api = FakeAnthropic()
    given = {"provider": "anthropic", "base_url": api.base_url, "api_key": SecretStr(key) if key else None}
    check = await report.model(ModelSettings.model_validate(given | settings))
    api.close()
    assert misses(check, wanted) == []
    assert (api.requests, "somebody" in str(check)) == ([], False)
