"""`agentic setup` and `agentic keys` change what exists only on request, and tell the changes."""

from pathlib import Path

import pytest

from agent_service.bus.topology import GIB
from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Exit
from groundwork.service.keys import KeyRing, read
from schemas import subjects
from tests.cli.invoke import Called, agentic_here, called
from tests.cli.stores import configured, up
from tests.kit.bus import server_with

CONTROL = "consumer control of stream AGENTIC: max_ack_pending is 64, expected 512"


@pytest.fixture
async def config(tmp_path: Path, nats_server: EmbeddedNats) -> Path:
    """Configuration of an agent whose bus has less room than usual."""
    made = configured(tmp_path, nats_server.url)
    assert (await called("setup", "--config", made, "--max-gib", "0.5")).code == 0
    return made


async def test_what_differs_is_told_by_a_dry_run_left_as_it_is_and_changed_when_that_is_asked_for(
    config: Path, link: NatsLink
) -> None:
    told = await called("setup", "--config", config, "--shared", "--change", "--dry-run")
    assert (told.code, f"would change {CONTROL}" in told.out) == (0, True)
    assert f"would create stream {subjects.STREAM_RUNS}" in told.out
    names = {stream.config.name for stream in await link.client.jetstream().streams_info()}
    control = await link.client.jetstream().consumer_info(subjects.STREAM, subjects.DURABLE_CONTROL)
    assert (subjects.STREAM_RUNS in names, control.config.max_ack_pending) == (False, 64)
    left = await called("setup", "--config", config, "--shared")
    assert (left.code, f"differs {CONTROL}. Left as it is" in left.out, "--change" in left.out) == (1, True, True)
    changed = await called("setup", "--config", config, "--shared", "--change")
    assert (changed.code, "control of stream AGENTIC: max_ack_pending is 512 now, and was 64" in changed.out) == (
        0,
        True,
    )
    kept = (await link.ask_jetstream(f"STREAM.INFO.{subjects.STREAM_DEAD_LETTERS}"))["config"]
    longer = {**kept, "max_age": 2 * kept["max_age"]}
    await link.ask_jetstream(f"STREAM.UPDATE.{subjects.STREAM_DEAD_LETTERS}", longer)
    again = await called("setup", "--config", config, "--shared", "--change")
    assert (again.code, again.out.strip()) == (0, "everything is there already")


async def test_on_a_small_server_streams_are_made_that_fit_and_setup_says_what_they_take(
    tmp_path: Path, unused_port: int
) -> None:
    server = {"jetstream": {"store_dir": str(tmp_path / "js"), "max_file_store": 2 * GIB}}
    async with server_with(tmp_path, unused_port, server) as address:
        await up(address)
        config = configured(tmp_path, f"nats://{address}")
        refused = await called("setup", "--config", config, "--max-gib", "10")
        told = await called("setup", "--config", config, "--dry-run")
        made = await called("setup", "--config", config)
        again = await called("setup", "--config", config)
        checked = await called("doctor", "--config", config)
    assert (refused.code, "with --max-gib 10 it sets 22.3 GiB aside: name less" in refused.err) == (78, True), refused
    assert "the server would set at most 22.3 GiB aside" in told.out
    assert (made.code, "created stream AGENTIC_STARTS" in made.out) == (0, True), made
    assert "the server sets 1.64 GiB aside for all of it (0.625 GiB of work)" in made.out
    assert "✓ streams" in checked.out
    assert (again.code, again.out.strip()) == (0, "everything is there already")


@pytest.mark.parametrize("asked", ["children=look", "tools=look", "mine=look,agentic-loop"])
async def test_no_executor_is_given_a_consumer_or_the_requests_of_agent_and_gateway(
    config: Path, link: NatsLink, asked: str
) -> None:
    told = await called("setup", "--config", config, "--executor", asked)
    (known,) = {one.name for one in await link.client.jetstream().consumers_info(subjects.STREAM_REQUESTS)} - {"tools"}
    assert (told.code, known) == (2, "children")


def keys(config: Path, *arguments: str) -> Called:
    return agentic_here("keys", *arguments, "--config", config, COLUMNS="200")


def test_keys_are_listed_without_secrets_followed_by_newer_ones_and_given_up_and_a_dry_run_changes_none(
    tmp_path: Path,
) -> None:
    config, file = configured(tmp_path), tmp_path / "agent.keys"
    (before,) = KeyRing.open(file).keys
    shown = keys(config, "list").out
    assert (before.id in shown, before.secret.hex() in shown) == (True, False)
    refused = keys(config, "retire", before.id)
    assert (refused.code, "agentic keys rotate" in refused.err) == (Exit.MISCONFIGURED, True)
    told = keys(config, "rotate", "--json").document
    assert (told["keys"][1]["id"], told["keys"][0]["endorsed_by"]["id"]) == (before.id, before.id)
    kept = read(file)
    for dry in (("rotate",), ("retire", before.id)):
        assert (keys(config, *dry, "--dry-run").code, read(file)) == (Exit.OK, kept)
    assert keys(config, "retire", before.id).code == Exit.OK
    assert before.id not in [key.id for key in read(file)]


def test_before_the_first_start_there_are_no_keys_and_none_are_made(tmp_path: Path) -> None:
    config = configured(tmp_path)
    refused = keys(config, "list")
    assert (refused.code, "when it starts" in refused.err) == (Exit.MISCONFIGURED, True)
    assert not (tmp_path / "agent.keys").exists()
