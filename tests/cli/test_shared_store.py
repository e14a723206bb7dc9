"""The commands that look at runs, on a store that several agents share: by a copy of the stream, which is kept."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from agent_service.bus.topology import topology
from agent_service.store.opening import log_of_runs
from agent_service.store.shared_log.marks import refuse_unless_here
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import create_missing
from groundwork.service.errors import Misconfigured
from schemas import subjects
from tests.cli.calling import agentic
from tests.cli.examined import configured, found
from tests.cli.test_migrating import MANY, filled
from tests.kit.runs import run_id
from tests.kit.struck import struck


@contextmanager
def shared(folder: Path) -> Iterator[Path]:
    """The configuration of an agent that shares its store with others: runs of one agent were moved there."""
    nats = EmbeddedNats(folder / "nats", sync_interval="1s")
    with asyncio.Runner() as runner:
        runner.run(nats.start())
        alone = configured(folder, nats.url)
        assert agentic("setup", "--config", alone, "--max-gib", "0.1", "--shared").code == 0
        store = runner.run(filled(alone))
        assert agentic("migrate", "--from", "sqlite", "--to", "jetstream", "--config", alone).code == 0
        settings = json.loads(alone.read_text())
        settings["agent"] |= {"store": "jetstream", "cache": str(folder / "copy"), "keys_file": f"{store}.keys"}
        made = folder / "shared.yaml"
        made.write_text(json.dumps(settings))
        yield made
        runner.run(nats.stop())


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For tests that look, and change nothing of the stream."""
    with shared(tmp_path_factory.mktemp("shared")) as made:
        yield made


def test_all_runs_are_verified_fact_by_fact(config: Path) -> None:
    told = agentic("verify", "--all", "--config", config, "--json")
    assert (told.code, told.document["runs"], told.document["flaws"]) == (0, MANY, []), told


def test_what_no_agent_wrote_into_the_stream_is_named_with_its_run(tmp_path: Path) -> None:
    with shared(tmp_path) as config:
        asyncio.run(forge(bus_of(config)))
        told = agentic("verify", "--all", "--config", config, "--json")
    assert told.code == 1
    assert [flaw["text"] for flaw in told.document["flaws"] if run_id(5) in flaw["text"]], told


async def forge(nats: NatsSettings) -> None:
    link = await connect(nats)
    body = b'{"v": 1, "by": "somebody"}'
    await link.publish(subjects.stored_run(run_id(5)), body, msg_id="forged", headers={})
    await link.close()


def test_a_run_s_folder_is_written_from_the_stream(config: Path) -> None:
    assert agentic("rebuild", run_id(5), "--config", config).code == 0
    assert (config.parent / "workspaces" / run_id(5) / "trace.jsonl").exists()
    assert agentic("verify", run_id(5), "--config", config).code == 0


async def test_the_doctor_looks_at_the_streams_of_several(config: Path) -> None:
    checks = await found(config)
    assert checks["streams"].mark == "ok", checks["streams"]
    assert (checks["cache"].mark, "database" in checks) == ("ok", False)


def test_it_is_backed_up_as_it_is_in_the_stream_and_restored_for_one_agent(config: Path, tmp_path: Path) -> None:
    place = tmp_path / "it.backup"
    made = agentic("backup", place, "--config", config, "--json")
    assert (made.code, made.document["about"]["agent"]["runs"]) == (0, MANY), made
    settings = json.loads(config.read_text())
    settings["agent"]["store"] = str(tmp_path / "one")
    one = tmp_path / "one.yaml"
    one.write_text(json.dumps(settings))
    refused = agentic("restore", place, "--config", config)
    assert (refused.code, "nothing is overwritten" in refused.err) == (78, True)
    told = agentic("restore", place, "--config", one, "--json")
    assert (told.code, told.document["runs"]) == (0, MANY), told
    assert (told.document["calls"], told.document["stopped"]) == (None, True), "nobody knows what they have written"
    verdict = agentic("verify", "--all", "--config", one, "--json")
    assert (verdict.document["runs"], {flaw["place"] for flaw in verdict.document["flaws"]}) == (MANY, set()), verdict


AT_A_RESTORE = (
    "agent_service.store.shared_log.moving:IntoLog._append",
    "agent_service.store.shared_log.moving:IntoLog._write_the_rest",
    "agent_service.cli.archive.migrating:said_to_come",
)


@pytest.mark.timeout(400)
def test_a_restore_into_the_stream_that_is_killed_bars_agents_until_it_is_finished(
    config: Path, tmp_path: Path
) -> None:
    place = tmp_path / "it.backup"
    assert agentic("backup", place, "--config", config).code == 0
    with another(config, tmp_path / "other") as other, struck(tmp_path, *AT_A_RESTORE) as command:
        for _ in command.strikes("restore", place, "--config", other):
            why = asyncio.run(barred(bus_of(other)))
            assert not why or "run `agentic restore FILE --backup" in why
            assert command.run("restore", place, "--config", other) in ((0,) if why else (0, 78))
            assert asyncio.run(barred(bus_of(other))) == ""
            asyncio.run(remade(bus_of(other)))
        verdict = agentic("verify", "--all", "--config", other, "--json")
        assert (verdict.document["runs"], verdict.document["flaws"]) == (MANY, []), verdict


@contextmanager
def another(config: Path, folder: Path) -> Iterator[Path]:
    """The configuration of an agent with the same keys on a bus of its own, on which nothing is."""
    nats = EmbeddedNats(folder / "nats", sync_interval="1s")
    with asyncio.Runner() as runner:
        runner.run(nats.start())
        settings = json.loads(config.read_text())
        settings["nats"]["urls"] = [nats.url]
        settings["agent"] |= {"cache": str(folder / "copy"), "workspaces": str(folder / "workspaces")}
        made = folder / "shared.yaml"
        made.write_text(json.dumps(settings))
        try:
            runner.run(remade(bus_of(made)))
            yield made
        finally:
            runner.run(nats.stop())


def bus_of(config: Path) -> NatsSettings:
    return NatsSettings(**json.loads(config.read_text())["nats"])


async def remade(bus: NatsSettings) -> None:
    """With a stream in which nothing is."""
    link = await connect(bus)
    with suppress(NotFoundError):
        await link.jetstream.delete_stream(subjects.STREAM_RUNS)
    await create_missing(link, topology(max_gib=0.1, shared=True))
    await link.close()


async def barred(bus: NatsSettings) -> str:
    """Why no agent begins on it."""
    link = await connect(bus)
    try:
        await refuse_unless_here(log_of_runs(link))
    except Misconfigured as error:
        return str(error)
    finally:
        await link.close()
    return ""
