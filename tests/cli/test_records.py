"""`agentic verify` and `agentic rebuild` on a store and a workspace, with neither an agent nor a bus."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from agent_service.bus.topology import topology
from agent_service.cli.archive.run_folder import rebuild, verify
from agent_service.cli.errors import Exit, NotDone, complaint_of
from agent_service.run.journal import Commit
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import rewrite
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from groundwork.service.errors import Misconfigured, Unreachable
from groundwork.service.keys import KeyRing
from schemas import subjects
from tests.cli.calling import agentic
from tests.core.cues import RUN_ID
from tests.core.cues import started as begun
from tests.core.script import Script
from tests.kit.runs import run_id, wake_of
from tests.projections.fakes import Shelf
from tests.projections.journals import (
    CRITIQUE,
    FETCH,
    FETCHING,
    FRAMING,
    GOAL,
    PAGE,
    asked_for,
    brings,
    commits_of,
    five_steps,
    second_by_second,
    thinks,
    worked_example,
)

SHELF = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


async def recorded(folder: Path, story: Script, shelf: dict[str, bytes]) -> Path:
    """The store and the workspace of one run in `folder`; the configuration to find them by. No bus answers it."""
    commits = commits_of(story)
    async with opened(folder / "agent") as store:
        await stored(store, commits)
        await rewrite(commits[0].entry.run_id, store, Workspace(folder / "workspaces"), Shelf(shelf))
    config = folder / "agentic.yaml"
    agent = {"store": str(folder / "agent"), "workspaces": str(folder / "workspaces")}
    config.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}, "agent": agent}))
    return config


def opened(folder: Path) -> AbstractAsyncContextManager[SqliteStore]:
    """The store as an agent opens it, which has made its keys."""
    KeyRing.open(folder.with_name("agent.keys"))
    return SqliteStore.open(folder, reserve=True)


async def stored(store: SqliteStore, commits: list[Commit]) -> None:
    await store.accept(replace(wake_of(commits[0]), wake_id=commits[0].entry.run_id), commits[0])
    for commit in commits[1:]:
        await store.commit(commit)


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    return await recorded(tmp_path, worked_example(), SHELF)


@pytest.fixture
def folder(config: Path) -> Path:
    return config.parent / "workspaces" / RUN_ID


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def name_bus(config: Path, url: str) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | {"nats": {"urls": [url]}}))


def tampered(config: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(config.parent / "agent" / "runs.db")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def test_an_untouched_run_is_as_it_was_written(config: Path) -> None:
    verdict = await verify(RUN_ID, config)
    assert (verdict.ok, verdict.entries, verdict.pages, verdict.artifacts) == (True, 8, 6, 2)
    assert str(verdict) == f"✓ {RUN_ID} is as it was written: 8 entries, 6 pages, 2 artifacts"


async def test_verify_and_rebuild_work_while_the_agent_has_the_store_open(config: Path) -> None:
    async with opened(config.parent / "agent") as store:
        await stored(store, commits_of(five_steps(run_id(2))))
        assert (await verify(RUN_ID, config)).ok
        assert (await rebuild(run_id(2), config)).added
        assert (await verify(run_id(2), config)).ok


async def test_looking_changes_nothing_in_the_store(config: Path) -> None:
    before = contents(config.parent / "agent")
    await verify(RUN_ID, config)
    await rebuild(RUN_ID, config)
    after = contents(config.parent / "agent")
    assert after["runs.db"] == before["runs.db"]


CHANGED_FILES: dict[str, Callable[[Path], object]] = {
    "plan.md:1: the line is not what the journal says": lambda folder: (folder / "plan.md").write_text("changed"),
    "memory.md: is not there": lambda folder: (folder / "memory.md").unlink(),
    "notes.txt: is no file of this run": lambda folder: (folder / "notes.txt").write_text("mine"),
    "artifacts/link: is no file of this run": lambda folder: (folder / "artifacts" / "link").symlink_to("/etc"),
}


async def test_a_changed_folder_is_named_and_rebuilt_byte_for_byte(config: Path, folder: Path) -> None:
    before = contents(folder)
    for says, change in CHANGED_FILES.items():
        change(folder)
        verdict = await verify(RUN_ID, config)
        assert says in str(verdict).splitlines()[0]
        assert f"`agentic rebuild --config {config} {RUN_ID}`" in str(verdict)
        rebuilt = await rebuild(RUN_ID, config)
        assert len(rebuilt.added + rebuilt.changed + rebuilt.removed) == 1
        assert contents(folder) == before
        assert (await verify(RUN_ID, config)).ok


async def test_a_rebuild_that_needs_the_bus_leaves_everything_as_it_is_while_that_is_away(
    config: Path, folder: Path
) -> None:
    (folder / "artifacts" / "critique.md").write_text("a better one")
    before = contents(folder)
    assert "its hash differs" in str(await verify(RUN_ID, config))
    with pytest.raises(Unreachable, match=r"artifacts/critique.md is needed from the bus, which is away") as raised:
        await rebuild(RUN_ID, config)
    complaint = complaint_of(raised.value)
    assert complaint is not None
    assert complaint.exit_code == Exit.UNREACHABLE
    assert contents(folder) == before


async def test_lost_artifacts_come_back_from_the_bus(
    config: Path, folder: Path, nats_server: EmbeddedNats, link: NatsLink
) -> None:
    await create_missing(link, topology(max_gib=1))
    bucket = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
    await bucket.put(f"{RUN_ID}/critique.md", CRITIQUE, "text/markdown")
    before = contents(folder)
    (folder / "artifacts" / "critique.md").unlink()
    name_bus(config, nats_server.url)
    assert (await rebuild(RUN_ID, config)).added == ("artifacts/critique.md",)
    assert contents(folder) == before
    shutil.rmtree(folder)
    without_page = await rebuild(RUN_ID, config)
    assert without_page.missing == ("artifacts/fetch-01.html",)


async def test_an_artifact_without_a_known_hash_is_counted_as_unproved(tmp_path: Path) -> None:
    story = second_by_second(
        asked_for(GOAL),
        begun((FETCH,)),
        thinks(FRAMING),
        thinks(FETCHING),
        brings(artifact_path="artifacts/page.html", content_type="text/html"),
    )
    config = await recorded(tmp_path, story, {"artifacts/page.html": PAGE})
    verdict = await verify(RUN_ID, config)
    assert verdict.ok
    assert verdict.unchecked == ("artifacts/page.html",)
    assert "unproved" in str(verdict)


CHANGED_JOURNALS = {
    "UPDATE journal SET event = replace(event, 'both', 'some') WHERE seq = 8": "entry 8 was changed",
    "UPDATE journal SET event = '{}' WHERE seq = 3": "entry 3",
    "UPDATE journal SET hash = zeroblob(32) WHERE seq = 2": "entry 2",
    "DELETE FROM journal WHERE seq = 4": "entry 4 is missing",
    "DELETE FROM journal WHERE seq = 8": "entry 8 is missing: the run had 8 entries",
    "UPDATE runs SET head = zeroblob(32)": "entry 8 is not the one that the run's state was made with",
    "UPDATE runs SET state = '{'": "the state of the run cannot be read",
}
CHANGED_ROWS = {
    "UPDATE briefs SET brief = json_set(brief, '$.limits.max_steps', 100000)": "brief.limits.max_steps is 100000, and",
    "UPDATE briefs SET goal = 'Something else'": "its goal is 'Something else', and its state says",
    "UPDATE runs SET status = 'failed'": "its status is 'failed', and its state says 'done'",
    "UPDATE runs SET due_at = 5": "its due_at is 5, and its state says None",
    "UPDATE runs SET state = json_set(state, '$.step', 1)": "step is 1, and its journal gives",
    "DELETE FROM items WHERE field = 'completed'": "completed is",
}


@pytest.mark.attack
@pytest.mark.parametrize(("place", "changes"), [("journal", CHANGED_JOURNALS), ("row", CHANGED_ROWS)])
async def test_every_change_to_a_journal_or_row_is_told_and_no_rebuild_is_offered(
    config: Path, place: str, changes: dict[str, str]
) -> None:
    store = config.parent / "agent"
    shutil.copytree(store, config.parent / "sound")
    for statement, says in changes.items():
        tampered(config, "PRAGMA foreign_keys = OFF", statement)
        verdict = await verify(RUN_ID, config)
        assert {flaw.place for flaw in verdict.flaws} == {place}, statement
        assert says in str(verdict)
        assert "rebuild" not in str(verdict)
        shutil.rmtree(store)
        shutil.copytree(config.parent / "sound", store)


async def test_nothing_is_rebuilt_from_a_changed_journal(config: Path, folder: Path) -> None:
    before = contents(folder)
    tampered(config, "UPDATE journal SET event = replace(event, 'both', 'some') WHERE seq = 8")
    with pytest.raises(NotDone, match="entry 8 was changed") as raised:
        await rebuild(RUN_ID, config)
    assert raised.value.exit_code == Exit.FAILED
    assert contents(folder) == before


async def test_a_run_that_is_not_there_is_not_found(config: Path) -> None:
    for name in (run_id(9), "run_1", "../x"):
        with pytest.raises(NotDone) as raised:
            await verify(name, config)
        assert raised.value.exit_code == Exit.NOT_FOUND


def test_without_a_store_the_configuration_is_what_to_look_at(tmp_path: Path) -> None:
    called = agentic("verify", "--json", run_id(1), cwd=tmp_path)
    assert (called.code, called.error["code"]) == (78, "misconfigured")
    assert ".agentic/agent/runs.db" in called.error["message"]
    assert list(tmp_path.iterdir()) == []


async def test_a_store_of_another_version_is_not_read(config: Path) -> None:
    tampered(config, "PRAGMA user_version = 99")
    with pytest.raises(Misconfigured, match="schema version 99"):
        await verify(RUN_ID, config)


def test_the_command_names_the_flaw_and_ends_with_1(config: Path, folder: Path) -> None:
    (folder / "trace.jsonl").write_text("{}\n")
    called = agentic("verify", "--config", config, RUN_ID)
    assert (called.code, called.err) == (1, "")
    assert called.out.startswith("✗ trace.jsonl:1: ")
    flaws = agentic("verify", "--config", config, "--json", RUN_ID).document["flaws"]
    assert [(flaw["place"], flaw["line"], flaw["kind"]) for flaw in flaws] == [("trace.jsonl", 1, "changed")]
