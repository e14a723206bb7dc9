"""`agentic du` says what everything takes on the disk, by kind and per run."""

import json
from pathlib import Path

import pytest

from agent_service.bus.topology import topology
from agent_service.cli.complaints import NotDone
from agent_service.cli.room_used import used
from ductile_gateway.bus.outgoing import NatsArtifacts
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from tests.cli.test_records import SHELF, recorded
from tests.core.cues import RUN_ID
from tests.kit.runs import run_id
from tests.projections.journals import worked_example


async def told(config: Path, capsys: pytest.CaptureFixture[str], run: str | None = None) -> dict[str, object]:
    await used(run, config, as_json=True)
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


async def test_each_kind_is_counted_and_all_of_it_is_the_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await told(await recorded(tmp_path, worked_example(), SHELF), capsys)
    kinds = {one["kind"]: one["bytes"] for one in found["kinds"]}  # type: ignore[attr-defined]
    assert set(kinds) == {"journal", "pages", "copies", "ledger", "streams"}
    assert kinds["copies"] >= sum(map(len, SHELF.values()))
    assert kinds["pages"] > 0
    assert found["bytes"] == sum(kinds.values()) == found["bytes_per_run"]


async def test_a_run_is_counted_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = await recorded(tmp_path, worked_example(), SHELF)
    found = await told(config, capsys, RUN_ID)
    assert found["run_id"] == RUN_ID
    assert 1000 < int(str(found["bytes"])) < 200_000
    assert {one["kind"] for one in found["kinds"]} == {"journal", "pages", "copies", "artifacts"}  # type: ignore[attr-defined]
    with pytest.raises(NotDone, match="there is no run"):
        await told(config, capsys, run_id(7))


async def test_a_bus_that_is_away_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await used(None, await recorded(tmp_path, worked_example(), SHELF), as_json=False)
    out = capsys.readouterr().out
    assert "not counted" in out
    assert "per run" in out


async def test_artifacts_of_a_run_are_counted_in_their_bucket(
    tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats, capsys: pytest.CaptureFixture[str]
) -> None:
    config = await recorded(tmp_path, worked_example(), SHELF)
    await create_missing(link, topology(max_gib=1))
    artifacts = NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET))
    await artifacts.put(RUN_ID, "page.html", b"x" * 5000, "text/html")
    await artifacts.put(run_id(7), "page.html", b"x" * 700, "text/html")
    config.write_text(json.dumps({**json.loads(config.read_text()), "nats": {"urls": [nats_server.url]}}))
    kinds = (await told(config, capsys, RUN_ID))["kinds"]
    assert [one["bytes"] for one in kinds if one["kind"] == "artifacts"] == [5000]  # type: ignore[attr-defined]
