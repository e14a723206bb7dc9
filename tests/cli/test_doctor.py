"""`agentic doctor`: what is wrong is named, with what to do about it; nothing is changed by looking."""

import contextlib
import hashlib
import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from agent_service.adapters.nats_dead_letters import NatsDeadLetters
from agent_service.adapters.nats_topology import topology
from agent_service.adapters.sqlite_store import SqliteStore
from agent_service.cli.doctor.bus import clock
from agent_service.cli.doctor.check import Check, ok
from agent_service.cli.doctor.permissions import NEEDED, denied, matches
from agent_service.cli.doctor.report import examine, on_this_machine, settings_in_force
from agent_service.settings import load
from groundwork.embedded_nats import EmbeddedNats
from groundwork.nats_errors import BusError
from groundwork.nats_link import NatsLink, connect
from groundwork.nats_settings import NatsSettings
from groundwork.topology import create_missing
from schemas import subjects
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from tests.cli.calling import agentic, agentic_here, interrupt, started
from tests.nats_server import server_with

SAMPLES = Path(__file__).parents[2] / "schemas" / "samples"
NOWHERE = "nats://127.0.0.1:1"
ITS_PASSWORD = "the-password-of-the-agent"  # noqa: S105 - of the server of these tests
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def configured(folder: Path, url: str = NOWHERE, **agent: Any) -> Path:
    """A configuration in `folder`; port 0 keeps the check of the API away from whatever runs on this machine."""
    places = {"store": str(folder / "agent"), "workspaces": str(folder / "workspaces"), "http": {"port": 0}}
    file = folder / "agentic.yaml"
    file.write_text(json.dumps({"nats": {"urls": [url]}, "agent": places | agent}))
    return file


async def found(config: Path) -> dict[str, Check]:
    return {check.name: check async for check in examine(config, deep=False)}


async def found_here(config: Path, *, deep: bool = False) -> dict[str, Check]:
    """Without the bus."""
    return {check.name: check async for check in on_this_machine(load(config, {}), deep=deep)}


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def marks(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.mark for name, check in checks.items()}


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


async def test_the_database_is_described_and_read_whole_when_asked(tmp_path: Path) -> None:
    config = configured(tmp_path)
    async with SqliteStore.open(tmp_path / "agent"):
        checks = await found_here(config, deep=True)  # while the agent has it open
    assert "0 runs" in checks["database"].text
    assert checks["integrity"].mark == "ok"


@pytest.mark.parametrize("damage", ["PRAGMA user_version = 99", None])
async def test_a_database_that_cannot_be_used_is_named(tmp_path: Path, damage: str | None) -> None:
    config, database = configured(tmp_path), tmp_path / "agent" / "runs.db"
    async with SqliteStore.open(tmp_path / "agent"):
        pass
    if damage is None:
        database.write_bytes(b"no database at all, but long enough to have a header of a hundred bytes" * 9)
    else:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute(damage)
    assert (await found_here(config, deep=True))["database"].mark == "wrong"


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


async def test_executors_that_offer_different_tools_of_one_name_are_both_named(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    await offering(link, "echo", "walk", executor="shop")
    await link.client.flush()
    assert (await found(configured(tmp_path, nats_server.url)))["tools"].text == (
        "2 tools: echo of shop (read), walk of shop (read)"
    )
    await offering(link, "echo", executor="mill", tier="write")
    await link.client.flush()
    check = (await found(configured(tmp_path, nats_server.url)))["tools"]
    assert check.mark == "warning"
    assert all(name in check.text for name in ("tool echo", "shop", "mill"))


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


async def test_what_is_no_gateway_and_answers_as_one_is_told(
    tmp_path: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    async def answer(message: Any) -> None:
        await message.respond(b"hello")

    await link.subscribe(subjects.STATUS, answer)
    assert (await found(configured(tmp_path, nats_server.url)))["gateway"].mark == "wrong"


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
    await letters.drop((await letters.all())[0], "somebody")
    assert (await found(config))["dead letters"].mark == "ok"


async def test_a_login_that_may_not_publish_everything_is_told_which(tmp_path: Path, unused_port: int) -> None:
    may = {"publish": {"allow": [">"], "deny": ["agent.completed", "agentic.tool_request.*"]}, "subscribe": ">"}
    users = {"users": [{"user": "agent", "password": ITS_PASSWORD, "permissions": may}]}
    config = {"authorization": users, "jetstream": {"store_dir": str(tmp_path / "js")}}
    async with server_with(tmp_path, unused_port, config) as address:
        url = f"nats://agent:{ITS_PASSWORD}@{address}"
        await up(address)
        checks = await found(configured(tmp_path, url))
        called = agentic("doctor", "--config", tmp_path / "agentic.yaml", "--json")
    assert checks["permissions"].mark == "wrong"
    assert "may not publish agentic.tool_request.x, agent.completed" in checks["permissions"].text
    assert ITS_PASSWORD not in str(checks) + called.out + called.err
    assert called.code == 1


async def test_a_refused_login_is_told_without_the_password(tmp_path: Path, unused_port: int) -> None:
    users = {"users": [{"user": "agent", "password": ITS_PASSWORD}]}
    async with server_with(tmp_path, unused_port, {"authorization": users}) as address:
        config = configured(tmp_path, f"nats://agent:wrong-password@{address}")
        await up(address)
        check = (await found(config))["nats"]
        served = agentic("serve", "--config", config)
        set_up = agentic("setup", "--config", config, "--json")
    assert check.mark == "wrong"
    assert "login is refused" in check.text
    assert (served.code, set_up.code) == (78, 78)
    assert "login is refused" in served.err
    assert len(served.err.splitlines()) <= 2
    assert "wrong-password" not in str(check) + served.err + set_up.err + set_up.out


async def test_a_password_in_the_address_of_the_bus_is_never_shown(tmp_path: Path, unused_port: int) -> None:
    users = {"users": [{"user": "agent", "password": ITS_PASSWORD}]}
    server = {"authorization": users, "jetstream": {"store_dir": str(tmp_path / "js")}}
    async with server_with(tmp_path, unused_port, server) as address:
        config = configured(tmp_path, f"nats://agent:{ITS_PASSWORD}@{address}")
        await up(address)
        said = str(agentic("setup", "--config", config))
        with started("serve", "--config", config) as agent:
            assert agent.stderr
            said += (ready := next(line for line in agent.stderr if '"ready"' in line))
            said += httpx2.get(f"{json.loads(ready)['http']}/readyz", trust_env=False).text
            interrupt(agent)
            said += agent.stderr.read()
        said += str(agentic("doctor", "--config", config)) + str(agentic("doctor", "--settings", "--config", config))
    assert json.loads(ready)["nats"] == f"nats://{address}"
    assert address in said
    assert ITS_PASSWORD not in said


@pytest.mark.parametrize("url", ["http://me:my-password@127.0.0.1:1", "ftp://me:my-password@host"])
def test_a_password_in_the_address_of_the_agent_is_not_shown(url: str) -> None:
    called = agentic_here("runs", "--url", url)
    assert called.code in {2, 69}
    assert "my-password" not in called.err + called.out


@pytest.mark.parametrize("value", ["", "x"])
def test_an_agent_whose_token_is_a_variable_without_a_token_does_not_start(tmp_path: Path, value: str) -> None:
    tokens = [{"name": "ops", "token": "${OPS_TOKEN}"}]
    served = agentic("serve", "--config", configured(tmp_path, http={"port": 0, "tokens": tokens}), OPS_TOKEN=value)
    assert served.code == 78
    assert "agent.http.tokens.0.token: is " in served.err


@pytest.mark.parametrize(
    ("section", "mark", "says"),
    [
        ({"runner": "plugins"}, "ok", "can be used"),
        ({"runer": "ductile"}, "wrong", "runer"),
        ({"runner": "ductile", "ductile": {"url": "http://127.0.0.1:1", "token": "${NOWHERE}"}}, "wrong", "NOWHERE"),
    ],
)
async def test_the_section_of_the_gateway_is_checked_by_the_gateway(
    tmp_path: Path, section: dict[str, Any], mark: str, says: str
) -> None:
    config = configured(tmp_path)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"gateway": section}))
    check = (await found(config))["gateway section"]
    assert (check.mark, says in check.text) == (mark, True), check


async def test_an_agent_with_another_store_on_the_port_is_not_called_the_one_that_is_configured(
    tmp_path: Path, unused_port: int
) -> None:
    async with EmbeddedNats(tmp_path / "nats", sync_interval="1s") as nats:
        mine, others = (tmp_path / name for name in ("mine", "others"))
        mine.mkdir()
        others.mkdir()
        running = configured(others, nats.url, http={"port": unused_port})
        assert agentic("setup", "--config", running, "--max-gib", "1").code == 0
        with started("serve", "--config", running) as agent:
            assert agent.stderr
            assert any('"ready"' in line for line in agent.stderr)
            its_own = (await found(running))["http"]
            strange = (await found(configured(mine, nats.url, http={"port": unused_port})))["http"]
            interrupt(agent)
    assert "has another store" not in its_own.text
    assert (strange.mark, "not the one that is configured here" in strange.text) == ("wrong", True), strange


async def test_a_server_with_little_room_is_named_with_the_option_that_needs_less(
    tmp_path: Path, unused_port: int
) -> None:
    jetstream = {"store_dir": str(tmp_path / "js"), "max_file_store": 2 << 30}
    async with server_with(tmp_path, unused_port, {"jetstream": jetstream}) as address:
        await up(address)
        config = configured(tmp_path, f"nats://{address}")
        refused = agentic("setup", "--config", config)
        created = agentic("setup", "--config", config, "--max-gib", "0.5")
        again = agentic("setup", "--config", config, "--max-gib", "0.5")
    assert (refused.code, "with --max-gib 10 it sets 21.3 GiB aside: name less" in refused.err) == (78, True), refused
    assert (created.code, "created" in created.out) == (0, True), created
    assert (again.code, "everything is there already" in again.out) == (0, True), again


def test_the_settings_in_force_show_no_secret(tmp_path: Path) -> None:
    token = {"name": "ops", "token": "0123456789abcdef0123"}
    file = configured(tmp_path, "nats://me:my-password@bus:4222", http={"port": 0, "tokens": [token]})
    whole, text = settings_in_force(file)
    assert whole["agent"]["nats"]["urls"] == ["nats://bus:4222"]
    assert whole["agent"]["http"]["tokens"][0]["scopes"] == ["control", "read", "wake"]
    for secret in ("0123456789abcdef0123", "my-password", hashlib.sha256(b"0123456789abcdef0123").hexdigest()):
        assert secret not in text + json.dumps(whole)


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*.b", "a.b", True),
        ("a.b.c", "a.b", False),
        ("a.*.>", "a.b", False),
    ],
)
def test_subjects_match_patterns_as_the_server_matches_them(pattern: str, subject: str, fits: bool) -> None:
    assert matches(pattern, subject) is fits


def test_permissions_that_are_not_limited_deny_nothing() -> None:
    assert denied({}) == []
    assert denied({"publish": {}}) == []
    assert (
        denied({"publish": {"allow": ["agentic.>", "agent.>", "$JS.>", "ductile-gateway.>", "$KV.agentic-leases.>"]}})
        == []
    )


def test_what_is_not_allowed_or_is_denied_is_denied() -> None:
    assert set(denied({"publish": {"allow": ["agentic.>"]}})) == {s for s in NEEDED if not s.startswith("agentic.")}
    assert denied({"publish": {"deny": ["agent.failed"]}}) == ["agent.failed"]


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


async def up(address: str) -> None:
    """Wait until the server takes the agent's login."""
    deadline = datetime.now(UTC) + timedelta(seconds=10)
    while True:
        try:
            settings = NatsSettings(urls=(f"nats://{address}",), user="agent", password=ITS_PASSWORD)
            link = await connect(settings, timeout_s=0.5)
        except BusError:
            assert datetime.now(UTC) < deadline
        else:
            await link.close()
            return


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
    assert free.text.startswith("free: given back 0.")
