"""`agentic doctor`: what is wrong is named, with what to do about it; nothing is changed by looking."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.topology import topology
from agent_service.cli.doctor import machine
from agent_service.cli.doctor.bus import clock
from agent_service.cli.doctor.report import examine, settings_in_force
from agent_service.telling.plain import ok
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from tests.cli.calling import interrupt, started
from tests.cli.examined import NOWHERE, configured, contents, found, found_here, marks

SAMPLES = Path(__file__).parents[2] / "schemas" / "samples"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


async def test_without_a_bus_the_rest_is_checked_all_the_same(tmp_path: Path) -> None:
    checks = await found(configured(tmp_path))
    assert marks(checks) == {
        "sqlite": "ok",
        "configuration": "ok",
        "store": "ok",
        "database": "ok",
        "workspaces": "ok",
        "model": "ok",
        "tokens": "ok",
        "nats": "wrong",
        "http": "warning",
    }
    assert NOWHERE in checks["nats"].text
    assert "agentic dev" in checks["nats"].remedy
    assert contents(tmp_path) == ["agentic.yaml"]


async def test_every_problem_of_the_configuration_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "agentic.yaml"
    file.write_text("agent: {stor: x, http: {port: 99999}}\nnats: {password: [hunter2hunter2]}\n")
    wrong = [check async for check in examine(file, deep=False) if check.mark == "wrong"]
    assert len(wrong) == 3
    assert {check.name for check in wrong} == {"configuration"}
    assert "hunter2" not in str(wrong)


@pytest.mark.parametrize(
    ("agent", "name", "says"),
    [
        ({"model": {"script": "/nowhere.yaml"}}, "model", "/nowhere.yaml"),
        ({"store": "/dev/null/agent"}, "store", "is no folder"),
        ({"http": {"host": "192.0.2.1", "port": 0}}, "tokens", "configure `http.tokens`"),
        ({"http": {"port": 0, "tokens": [{"name": "a", "token": "too-short"}]}}, "tokens", "at least 16 characters"),
        ({"http": {"port": 0, "tokens": [{"name": "a"}]}}, "tokens", "either `token` or `sha256`"),
    ],
)
async def test_what_is_wrong_on_this_machine_is_named(tmp_path: Path, agent: Any, name: str, says: str) -> None:
    check = (await found_here(configured(tmp_path, **agent)))[name]
    assert check.mark == "wrong"
    assert says in check.text
    assert check.remedy


async def test_a_bus_without_streams_and_gateway_is_told_with_the_remedies(
    tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    checks = await found(configured(tmp_path, nats_server.url))
    assert (checks["nats"].mark, checks["jetstream"].mark) == ("ok", "ok")
    assert (checks["permissions"].mark, checks["clock"].mark) == ("ok", "ok")
    assert checks["streams"].mark == "wrong"
    assert "stream AGENTIC" in checks["streams"].text
    assert "consumer loop" in checks["streams"].text
    assert "agentic setup" in checks["streams"].remedy
    assert checks["tools"].mark == "wrong"
    assert "ductile-gateway serve" in checks["tools"].remedy


async def test_tools_that_are_allowed_and_not_offered_are_a_warning(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    await create_missing(link, topology(max_gib=1))
    await offering(link, "echo")
    checks = await found(configured(tmp_path, nats_server.url, tools=["echo", "browse"]))
    assert checks["streams"].mark == "ok"
    assert checks["tools"].mark == "warning"
    assert "browse" in checks["tools"].text
    assert (await found(configured(tmp_path, nats_server.url)))["tools"].text == "1 tools: echo (read)"


async def test_what_the_gateway_finds_of_itself_and_of_ductile_is_shown_as_it_says_it(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    body = (SAMPLES / "ductile-gateway.status.v1.json").read_bytes()

    async def answer(message: Any) -> None:
        await message.respond(body)

    await link.subscribe(subjects.STATUS, answer)
    checks = await found(configured(tmp_path, nats_server.url))
    assert checks["gateway"] == ok("gateway", "0.1.0 offers 4 tools, 2 calls in hand")
    assert (checks["ductile"].mark, "620 jobs" in checks["ductile"].text) == ("warning", True)


async def test_a_stream_that_differs_is_a_warning(tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink) -> None:
    await create_missing(link, topology(max_gib=1))
    stream = await link.jetstream.stream_info(subjects.STREAM)
    await link.jetstream.update_stream(stream.config.evolve(duplicate_window=60.0))
    check = (await found(configured(tmp_path, nats_server.url)))["streams"]
    assert check.mark == "warning"
    assert "duplicate_window is 60.0, expected 86400.0" in check.text
    assert "nats stream edit AGENTIC" in check.remedy


async def test_a_dead_letter_is_a_warning_until_somebody_has_dealt_with_it(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    await create_missing(link, topology(max_gib=1))
    config = configured(tmp_path, nats_server.url)
    assert (await found(config))["dead letters"].mark == "ok"
    said = {"Dead-Letter-Subject": subjects.START}
    await link.publish(subjects.DEAD_LETTERS_LOOP, b"{}", msg_id="dead", headers=said)
    check = (await found(config))["dead letters"]
    assert (check.mark, "the newest of them on agentic.start" in check.text) == ("warning", True)
    letters = NatsDeadLetters(link)
    await letters.drop((await letters.all())[0].id, "somebody")
    assert (await found(config))["dead letters"].mark == "ok"


SHARED = "one-secret-for-two-doors"
HOOK = {"scheme": "ductile", "keys": [{"secret": SHARED}], "events": {"*": {"to": "agentic.start", "goal": "x"}}}
PEER = {"keys": [{"id": "v1", "secret": SHARED}]}
OPS = {"http": {"tokens": [{"name": "ops", "token": SHARED}]}}


@pytest.mark.attack(105)
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"gateway": {"ingress": {"webhooks": {"cms": HOOK}}, "outbound": {"relay": {"secret": SHARED}}}},
            "gateway.ingress.webhooks.cms.keys.0.secret and gateway.outbound.relay.secret",
        ),
        ({"agent": OPS, "nats": {"password": SHARED}}, "agent.http.tokens.ops.token and nats.password"),
        ({"agent": OPS, "gateway": {"plugins": {"config": {"agentic-wake": {"token": SHARED}}}}}, ""),
        ({"gateway": {"ductile": {"relay": {"secret": SHARED}}, "outbound": {"relay": {"secret": SHARED}}}}, ""),
        ({"gateway": {"ingress": {"peers": {"home": PEER}}, "outbound": {"relay": {"secret": SHARED}}}}, ""),
        ({"gateway": {"ingress": {"peers": {"home": PEER}}, "outbound": {"relays": {"home": {"secret": SHARED}}}}}, ""),
        (
            {"gateway": {"ingress": {"peers": {"home": PEER}}, "outbound": {"relays": {"work": {"secret": SHARED}}}}},
            "gateway.ingress.peers.home.keys.0.secret and gateway.outbound.relays.work.secret",
        ),
    ],
)
def test_secrets_that_open_two_doors_are_told_and_not_shown(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    file = tmp_path / "agentic.yaml"
    file.write_text(json.dumps(settings))
    lines = [finding.text for finding in machine.secrets(file)]
    assert lines == ([f"{told} are the same secret"] if told else [])


@pytest.mark.attack(60)
def test_the_settings_in_force_show_no_login_of_an_address(tmp_path: Path) -> None:
    file = tmp_path / "agentic.yaml"
    told = '"http://me:my-password@127.0.0.1:1"'
    ours = f"{{model: {{base_url: {told}, proxy: {told}}}, telemetry: {{endpoint: {told}, proxy: {told}}}}}"
    file.write_text(f"agent: {ours}\n")
    whole, text = settings_in_force(file)
    assert "my-password" not in text + json.dumps(whole)
    assert whole["agent"]["model"]["proxy"] == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("server", "mark", "says"),
    [
        ({"time": "2026-11-21T12:00:03.123456789Z"}, "ok", "within"),
        ({"time": "2026-11-21T11:58:00Z"}, "warning", "2:00 ahead of"),
        ({"time": "2026-11-21T13:00:00Z"}, "warning", "1:00:00 behind"),
        ({}, "warning", "does not tell its time"),
        ({"time": 7}, "warning", "does not tell its time"),
    ],
)
def test_the_clock_is_compared_with_the_servers(server: dict[str, Any], mark: str, says: str) -> None:
    check = clock(server, NOW)
    assert (check.mark, says in check.text) == (mark, True)


async def offering(
    link: NatsLink, *names: str, executor: str | None = None, tier: Literal["read", "write"] = "read"
) -> None:
    """An executor that only tells its catalog."""
    command = ToolCommand(name="handle", tier=tier)
    tools = tuple(ToolOffer(name=name, route=name, commands=(command,)) for name in names)
    body = Catalog(revision="1", tools=tools, executor=executor).model_dump_json().encode()

    async def answer(message: Any) -> None:
        await message.respond(body)

    await link.subscribe(subjects.CATALOG, answer)


async def test_it_is_shown_who_owns_the_bus_and_a_stranger_there_is_a_warning(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    await create_missing(link, topology(max_gib=1))
    config = configured(tmp_path, nats_server.url)
    unowned = await found(config)
    with started("serve", "--config", config) as agent:
        assert agent.stderr
        next(line for line in agent.stderr if '"ready"' in line)
        owned = (await found(config))["agent lease"]
        (tmp_path / "other").mkdir()
        stranger = (await found(configured(tmp_path / "other", nats_server.url)))["agent lease"]
        interrupt(agent)
        agent.wait()
    free = (await found(config))["agent lease"]
    assert {unowned[f"{name} lease"].text for name in ("agent", "gateway")} == {"nobody has had it yet"}
    assert (owned.mark, f"process {agent.pid} on " in owned.text, "epoch 1" in owned.text) == ("ok", True, True)
    assert stranger.mark == "warning"
    assert "agentic serve --take-over" in stranger.remedy
    assert free.text.startswith("free: given back ")
