"""`agentic setup` changes what exists only when it is told to, and says beforehand what that would be."""

from pathlib import Path

import pytest
import yaml

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.cli.calling import agentic
from tests.cli.examined import configured

CONTROL = "consumer control of stream AGENTIC: ack_wait is 30.0, expected 5.0"


@pytest.fixture
def config(tmp_path: Path, nats_server: EmbeddedNats) -> Path:
    """Of an agent whose bus was made for it alone, with less room than is usual."""
    made = configured(tmp_path, nats_server.url)
    assert agentic("setup", "--config", made, "--max-gib", "0.5").code == 0
    return made


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(config: Path, nats_server: EmbeddedNats) -> None:
    told = agentic("setup", "--config", config, "--shared", "--change", "--dry-run")
    assert told.code == 0
    assert f"would change {CONTROL}" in told.out
    assert f"would create stream {subjects.STREAM_RUNS}" in told.out
    link = await connect(NatsSettings(urls=(nats_server.url,)))
    names = {stream.config.name for stream in await link.jetstream.streams_info()}
    control = await link.jetstream.consumer_info(subjects.STREAM, subjects.DURABLE_CONTROL)
    await link.close()
    assert (subjects.STREAM_RUNS in names, control.config.ack_wait) == (False, 30.0)


def test_what_differs_is_left_with_how_to_have_it_changed_and_changed_when_that_is_asked_for(config: Path) -> None:
    left = agentic("setup", "--config", config, "--shared")
    assert left.code == 1
    assert f"differs {CONTROL}. Left as it is" in left.out
    assert "--change" in left.out
    changed = agentic("setup", "--config", config, "--shared", "--change")
    assert (changed.code, "control of stream AGENTIC: ack_wait is 5.0 now, and was 30.0" in changed.out) == (0, True)
    again = agentic("setup", "--config", config, "--shared")
    assert (again.code, again.out.strip()) == (0, "everything is there already")


def test_the_size_of_what_exists_is_compared_only_with_one_that_was_named(config: Path) -> None:
    assert agentic("setup", "--config", config).code == 0
    named = agentic("setup", "--config", config, "--max-gib", "0.25")
    assert (named.code, "max_bytes is" in named.out) == (1, True)


def test_settings_that_name_the_shared_store_have_its_streams_made(tmp_path: Path, nats_server: EmbeddedNats) -> None:
    made = configured(tmp_path, nats_server.url)
    settings = yaml.safe_load(made.read_text())
    settings["agent"] |= {"store": "jetstream", "keys_file": str(tmp_path / "agent.keys")}
    made.write_text(yaml.safe_dump(settings))
    told = agentic("setup", "--config", made, "--max-gib", "0.1")
    assert (told.code, f"created stream {subjects.STREAM_RUNS}" in told.out) == (0, True)
