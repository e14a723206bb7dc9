"""The commands that look at runs, on a store that several agents share: by a copy of the stream, which is kept."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.cli.calling import agentic
from tests.cli.examined import configured, found
from tests.cli.test_migrating import MANY, filled
from tests.kit.runs import run_id


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


def test_a_run_is_verified_by_a_copy_of_the_stream_though_nobody_has_written_its_folder(config: Path) -> None:
    told = agentic("verify", run_id(5), "--config", config, "--json")
    assert (told.code, told.document["flaws"]) == (0, []), told


def test_all_runs_are_verified_fact_by_fact(config: Path) -> None:
    told = agentic("verify", "--all", "--config", config, "--json")
    assert (told.code, told.document["runs"], told.document["flaws"]) == (0, MANY, []), told


def test_what_no_agent_wrote_into_the_stream_is_named_with_its_run(tmp_path: Path) -> None:
    with shared(tmp_path) as config:
        asyncio.run(forge(NatsSettings(**json.loads(config.read_text())["nats"])))
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


def test_a_shared_store_is_sealed_by_nobody_but_its_agents(config: Path) -> None:
    refused = agentic("seal", "--config", config)
    assert (refused.code, "which its agents seal" in refused.err) == (78, True), refused


def test_the_setup_knows_by_the_settings_that_a_store_is_shared(config: Path) -> None:
    told = agentic("setup", "--config", config)
    assert (told.code, told.out.strip()) == (0, "everything is there already")


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
    assert (refused.code, "agentic migrate" in refused.err) == (78, True)
    told = agentic("restore", place, "--config", one, "--json")
    assert (told.code, told.document["runs"], told.document["flawed"]) == (0, MANY, {}), told
    verdict = agentic("verify", "--all", "--config", one, "--json")
    assert (verdict.document["runs"], {flaw["place"] for flaw in verdict.document["flaws"]}) == (MANY, set()), verdict
