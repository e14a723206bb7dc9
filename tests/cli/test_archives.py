"""`verify`, `backup`, `restore`, `export` and `prune` without an agent."""

import json
import shutil
import time
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from agent_service.archive import writing
from agent_service.archive.access import StoreReader
from agent_service.archive.restoring import restore, restore_artifacts
from agent_service.archive.verifying import checked_journal, verify, verify_file
from agent_service.archive.writing import backup, export
from agent_service.bus.topology import topology
from agent_service.settings import load
from agent_service.store.database import FILE
from agent_service.store.moving import require_runs_here
from agent_service.store.runs import RunStore
from agent_service.trust.proofs import sealed_head
from groundwork.archive import format as archive_format
from groundwork.nats.buckets import ArtifactBucket
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import set_up
from groundwork.service.errors import Exit, Misconfigured, NotDone, TryAgain
from groundwork.service.keys import KeyRing
from schemas import envelope, subjects
from tests.cli.invoke import agentic_here
from tests.cli.stores import SHELF, name_bus, opened, recorded, set_section, tampered
from tests.core.cues import RUN_ID, cancel, child_of, comes_home
from tests.core.script import commits_of
from tests.core.words import PARENT, run_at
from tests.kit.disks import fill
from tests.kit.kill_points import kill_at_each_point
from tests.kit.runs import run_id
from tests.ports.stores import stored
from tests.projections.conftest import small_disk
from tests.projections.journals import entries_of, pages_of, worked_example

__all__ = ["small_disk"]

KEYS = [f"{RUN_ID}/{path.removeprefix('artifacts/')}" for path in SHELF]
Members = dict[str, bytes]


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    """Configuration of a store with one run whose folder is written. No bus answers."""
    return await recorded(tmp_path / "here", worked_example(), SHELF)


@pytest.fixture
def folder(config: Path) -> Path:
    return config.parent / "workspaces" / RUN_ID


@pytest.fixture
async def bucket(config: Path, nats_server: EmbeddedNats, link: NatsLink) -> ArtifactBucket:
    """Uploads the run's artifacts; the configuration names its bus."""
    await set_up(link, topology(max_gib=1))
    made = ArtifactBucket(link, subjects.ARTIFACT_BUCKET)
    name_bus(config, nats_server.url)
    for key, content in zip(KEYS, SHELF.values(), strict=True):
        await made.put(key, content, "text/plain")
    return made


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"{tmp_path}/backups"


@pytest.fixture
async def file(config: Path, tmp_path: Path) -> Path:
    return Path((await export(config, RUN_ID, tmp_path / "it.zip")).facts["file"])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lost(config: Path, *, but_keys: bool = True) -> None:
    """Deletes everything that an agent stores; the keys are also kept elsewhere."""
    for name in ("agent", "workspaces"):
        shutil.rmtree(config.parent / name, ignore_errors=True)
    if not but_keys:
        (config.parent / "agent.keys").unlink()


async def flawed_places(config: Path) -> set[str]:
    return {flaw["place"] for flaw in (await verify(RUN_ID, config)).facts["flaws"]}


async def test_an_untouched_run_is_as_it_was_written_and_looking_changes_nothing_also_where_a_page_is_behind(
    config: Path, folder: Path
) -> None:
    before = contents(config.parent / "agent")["runs.db"]
    verdict = await verify(RUN_ID, config)
    assert (verdict.ok, *(verdict.facts[name] for name in ("entries", "pages", "artifacts"))) == (True, 8, 6, 2)
    assert contents(config.parent / "agent")["runs.db"] == before
    (folder / "plan.md").write_text(pages_of(entries_of(worked_example())[:6])["plan.md"])
    verdict = await verify(RUN_ID, config)
    assert (verdict.ok, [flaw["place"] for flaw in verdict.facts["behind"]]) == (True, ["plan.md"])
    assert "! plan.md: is as of entry 6 of 8" in verdict.text
    for name in (run_id(9), "run_1", "../x"):
        with pytest.raises(NotDone) as raised:
            await verify(name, config)
        assert raised.value.exit_code == Exit.NOT_FOUND


def test_the_commands_name_the_flaw_and_end_with_1_and_without_a_store_name_the_configuration(
    config: Path, folder: Path, tmp_path: Path
) -> None:
    (folder / "trace.jsonl").write_text("{}\n")
    called = agentic_here("verify", "--config", config, RUN_ID)
    assert (called.code, called.err, called.out.startswith("✗ trace.jsonl:1: ")) == (1, "", True)
    flaws = agentic_here("verify", "--config", config, "--json", RUN_ID).document["flaws"]
    assert [(flaw["place"], flaw["line"], flaw["kind"]) for flaw in flaws] == [("trace.jsonl", 1, "changed")]
    (tmp_path / "empty").mkdir()
    called = agentic_here("verify", "--json", run_id(1), cwd=tmp_path / "empty")
    assert (called.code, ".agentic/agent/runs.db" in called.error["message"]) == (78, True)
    assert list((tmp_path / "empty").iterdir()) == []


def test_an_option_that_would_have_no_effect_is_refused(config: Path) -> None:
    refused = {"restore --artifacts --dry-run": Exit.USAGE, "backup it.zip --keep 3": Exit.MISCONFIGURED}
    for command, code in refused.items():
        called = agentic_here(*command.split(), "--config", config, cwd=config.parent)
        assert (called.code, "--" in called.err) == (code, True), called


CHANGED_JOURNALS = {
    "UPDATE journal SET event = replace(event, 'both', 'some') WHERE seq = 8": "entry 8 was changed",
    "DELETE FROM journal WHERE seq = 8": "entry 8 is not there as",
    "DELETE FROM journal": "has no entries",
    "UPDATE runs SET head = zeroblob(32)": "entry 8 is not there as",
    "UPDATE runs SET state = '{'": "its state or brief cannot be read",
}
CHANGED_ROWS = {
    "UPDATE briefs SET brief = json_set(brief, '$.limits.max_steps', 100000)": "its brief is not",
    "UPDATE runs SET goal = 'Something else'": "its goal is not",
    "UPDATE runs SET status = 'failed'": "its status is not",
    "UPDATE runs SET due_at = 5": "its due_at is not",
    "UPDATE runs SET state = json_set(state, '$.step', 1)": "its step is not",
    "DELETE FROM items WHERE field = 'completed'": "its completed is not",
}


@pytest.mark.attack
async def test_every_change_to_a_journal_or_row_is_told_and_nothing_is_exported_of_it(
    config: Path, folder: Path, tmp_path: Path
) -> None:
    store, before = config.parent / "agent", contents(folder)
    shutil.copytree(store, config.parent / "sound")
    for statement, says in (CHANGED_JOURNALS | CHANGED_ROWS).items():
        tampered(config, "PRAGMA foreign_keys = OFF", statement)
        verdict = await verify(RUN_ID, config)
        assert {flaw["place"] for flaw in verdict.facts["flaws"]} == {
            "row" if statement in CHANGED_ROWS else "journal"
        }, statement
        assert (says in verdict.text, "journal is whole" in verdict.text) == (True, False), verdict
        shutil.rmtree(store)
        shutil.copytree(config.parent / "sound", store)
    tampered(config, "UPDATE runs SET summary = 'all is well'")
    with pytest.raises(NotDone, match="not as its agent left it"):
        await export(config, RUN_ID, tmp_path / "it.zip")
    assert (contents(folder), (tmp_path / "it.zip").exists()) == (before, False)
    tampered(config, "PRAGMA user_version = 99")
    with pytest.raises(Misconfigured, match="schema version 99"):
        await verify(RUN_ID, config)


async def test_what_was_backed_up_without_the_bus_has_the_artifacts_of_the_last_one_with_it(
    config: Path, bucket: ArtifactBucket, nats_server: EmbeddedNats, place: str
) -> None:
    with_them = await backup(config, place, keep=1)
    name_bus(config, "nats://127.0.0.1:9")
    without = await backup(config, place, keep=1)
    assert (without.ok, list(without.facts["left_out"])) == (False, ["gateway", "artifacts"])
    assert f"Those of agentic-{with_them.facts['backup']}.zip are in it" in without.facts["left_out"]["artifacts"]
    name_bus(config, nats_server.url)
    page, critique = KEYS
    await bucket.remove(page)
    await bucket.put(critique, b"made after that backup", "text/plain")
    lost(config)
    told = await restore(config, place)
    assert (told.facts["backup"], told.facts["artifacts"]) == (without.facts["backup"], len(KEYS))
    assert [await bucket.get(key) for key in KEYS] == [SHELF["artifacts/fetch-01.html"], b"made after that backup"]


@pytest.mark.usefixtures("bucket")
async def test_runs_that_began_or_went_on_after_the_backup_are_told_apart(
    config: Path, link: NatsLink, place: str
) -> None:
    ring = KeyRing.open(load(config, {}).keys_path())
    await backup(config, place)
    for one, seq in ((RUN_ID, 8), (RUN_ID, 9), (run_id(2), 3)):
        said = {
            envelope.RUN_ID: one,
            envelope.HEAD: sealed_head(ring, one, seq, "ab" * 32),
        }
        await link.client.jetstream().publish(subjects.COMPLETED, b"{}", headers=said)
    before = contents(config.parent / "agent")
    with pytest.raises(Misconfigured, match="a store with 1 runs, and nothing is overwritten: move it away"):
        await restore(config, place, dry_run=True)
    assert contents(config.parent / "agent") == before, "an agent may have it open"
    (config.parent / "agent" / FILE).write_bytes(b"no database" * 100)
    for command in (restore(config, place), verify(RUN_ID, config)):
        with pytest.raises(Misconfigured, match=r"cannot be read \(.*move it away and restore a backup"):
            await command
    lost(config)
    looked = await restore(config, place, dry_run=True)
    assert (looked.facts["runs"], (load(config, {}).store / FILE).exists()) == (1, False)
    told = await restore(config, place)
    assert told.facts["ended_since"] == {RUN_ID: "agent.completed was told with entry 9"}
    assert told.facts["begun_since"] == {run_id(2): "agent.completed was told with entry 3"}
    assert f"`agentic cancel {RUN_ID}`" in told.text


@pytest.mark.usefixtures("bucket")
async def test_with_lost_keys_a_backup_is_taken_as_it_is_only_when_asked_for(config: Path, place: str) -> None:
    await backup(config, place)
    lost(config, but_keys=False)
    with pytest.raises(Misconfigured, match=r"made --with-keys; .*--new-keys"):
        await restore(config, place)
    assert (await restore(config, place, new_keys=True)).facts["runs"] == 1
    assert await flawed_places(config) == set()


@pytest.mark.usefixtures("bucket")
async def test_a_full_disk_costs_no_earlier_backup_and_takes_no_export_and_with_room_the_next_is_made(
    config: Path, small_disk: Path
) -> None:
    place = str(small_disk)
    first = await backup(config, place)
    filler = fill(small_disk)
    for command in (backup(config, place), export(config, RUN_ID, small_disk / "it.zip")):
        with pytest.raises(TryAgain, match="no room for"):
            await command
    assert contents(small_disk).keys() == {f"agentic-{first.facts['backup']}.zip", "filler"}
    filler.unlink()
    await backup(config, place)
    lost(config)
    assert (await restore(config, place, backup=first.facts["backup"])).facts["runs"] == 1


async def test_what_the_bucket_lost_comes_back_from_folders_where_it_is_what_its_tool_made(
    config: Path, bucket: ArtifactBucket, folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, critique = KEYS
    tampered(config, "INSERT INTO gone VALUES ('deleted meanwhile', 'w', 'd', 'done', 0, 0, 0, 'a rule', NULL)")
    monkeypatch.setattr(RunStore, "with_artifacts", AsyncMock(return_value=[RUN_ID, "deleted meanwhile"]))
    await bucket.remove(page)
    whole = verify_file(Path((await backup(config, place)).facts["file"]))
    assert (whole.ok, f"! without {RUN_ID}/artifacts/fetch-01.html: neither" in whole.text) == (True, True), whole
    await bucket.put(critique, b"a better one", "text/plain")
    found = await restore_artifacts(config)
    assert (sorted(found.facts["back"]), found.facts["lost"], found.facts["runs"]) == (sorted(KEYS), {}, 2)
    assert [await bucket.get(key) for key in KEYS] == list(SHELF.values())
    for key in KEYS:
        await bucket.remove(key)
    changed, gone = (folder / path for path in SHELF)
    changed.write_text("another")
    gone.unlink()
    found = await restore_artifacts(config)
    assert (found.ok, found.facts["back"]) == (False, [])
    assert set(found.facts["lost"]) == {page, critique}
    assert await bucket.get(page) is None
    shutil.rmtree(folder)
    assert await flawed_places(config) == {*SHELF}, "they were written, and are nowhere"
    await bucket.put(page, b"another", "text/plain")
    await backup(config, place)
    lost(config)
    await restore(config, place)
    assert await flawed_places(config) == set(SHELF)


AT_A_BACKUP = ("groundwork.archive.format:ArchiveWriter.add", "groundwork.archive.format:ArchiveWriter.finish")
AT_A_RESTORE = ("agent_service.store.moving:write_marker", "agent_service.archive.restoring:_load")


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("bucket")
async def test_a_killed_backup_costs_none_before_it_and_no_agent_begins_on_the_store_of_a_killed_restore(
    config: Path, tmp_path: Path
) -> None:
    place, store = tmp_path / "backups", config.parent / "agent"
    place.mkdir()
    first = await backup(config, str(place))
    for _ in kill_at_each_point(tmp_path, AT_A_BACKUP, "backup", place, "--config", config):
        assert verify_file(Path(first.facts["file"])).ok
    lost(config)
    assert (await restore(config, str(place), backup=first.facts["backup"])).facts["runs"] == 1
    lost(config)
    barred = 0
    for _ in kill_at_each_point(tmp_path, AT_A_RESTORE, "restore", place, "--config", config):
        if (store / "moved.json").exists():
            barred += 1
            with pytest.raises(Misconfigured, match=r"not finished: run `agentic restore` of \w+ again"):
                await require_runs_here(store)
        elif "runs.db" in contents(store):
            assert await flawed_places(config) == set()
            shutil.rmtree(store)
    assert (await flawed_places(config), barred > 2) == (set(), True)
    assert len(list(place.iterdir())) == 2


@pytest.mark.usefixtures("bucket")
async def test_a_damaged_or_foreign_backup_is_refused_and_nothing_of_it_is_stored(
    config: Path, bucket: ArtifactBucket, place: str
) -> None:
    whole = Path((await backup(config, place)).facts["file"])
    lost(config)
    for key in KEYS:
        await bucket.remove(key)
    foreign = changed(whole, lambda members: members.pop("signature.json")).rename(whole.with_name("foreign.zip"))
    damaged = changed(whole, lambda members: members.update({f"{RUN_ID}/journal.jsonl": b"{}"}))
    for file, why in ((damaged, "Nothing was restored: use another copy"), (foreign, "was not said with these keys")):
        with pytest.raises(Misconfigured, match=why):
            await restore(config, str(file))
    lost(config, but_keys=False)
    with pytest.raises(Misconfigured, match="use the version that made it"):
        await restore(config, str(changed(whole, with_a_stop_of_a_newer_version)), new_keys=True)
    assert await bucket.list() == []
    assert not (config.parent / "agent" / FILE).exists()


def with_a_stop_of_a_newer_version(members: Members) -> None:
    _named_anew(members, "beside.jsonl", b'["agentic-store.halt",{"v":999999}]\n')


async def test_a_ledger_that_cannot_be_read_ends_a_backup_with_the_words_of_the_gateway(
    config: Path, tmp_path: Path
) -> None:
    (ledger := tmp_path / "gateway" / "ledger.db").parent.mkdir()
    ledger.write_bytes(b"no database" * 100)
    set_section(config, "gateway", {"store": str(ledger.parent)})
    with pytest.raises(NotDone, match=f"^{ledger} cannot be read") as told:
        await backup(config, f"{tmp_path}/backups")
    assert told.value.exit_code is Exit.MISCONFIGURED


def changed(file: Path, change: Callable[[Members], object]) -> Path:
    """Changes members of the file without changing the manifest."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    other = file.with_name("changed.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return other


async def test_a_run_proves_itself_where_its_store_is_not(file: Path, config: Path) -> None:
    with pytest.raises(Misconfigured, match="nothing is overwritten"):
        await export(config, RUN_ID, file)
    public = agentic_here("keys", "list", "--json", "--config", config).document["keys"][0]["public"]
    shutil.rmtree(config.parent / "agent")
    verdict = verify_file(file)
    assert (verdict.ok, verdict.facts["public"]) == (True, public)
    assert "done, 8 entries, 2 artifacts" in verdict.text
    assert verify_file(file, key=public).ok
    assert not verify_file(file, key="A" * 43).ok
    assert file.stat().st_mode & 0o077 == 0  # noqa: ASYNC240


def another_journal(members: Members) -> None:
    """Replaces the journal, with a matching manifest and no signature."""
    journal = f"{RUN_ID}/journal.jsonl"
    _named_anew(members, journal, members[journal].replace(b"2 paragraphs", b"3 paragraphs"))


def _named_anew(members: Members, name: str, content: bytes) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["files"][name] = sha256(content).hexdigest()
    members |= {name: content, "manifest.json": json.dumps(manifest).encode()}
    members.pop("signature.json")


def twice(members: Members) -> None:
    _named_anew(members, "runs.jsonl", 2 * members["runs.jsonl"])


CHANGES: dict[str, Callable[[Members], object]] = {
    "critique.md: is not what was written": lambda m: m.update({f"{RUN_ID}/artifacts/critique.md": b"better"}),
    "notes.txt: is not a file of this archive": lambda m: m.update({f"{RUN_ID}/notes.txt": b"mine"}),
    "escape: is not a file of this archive": lambda m: m.update({"../../escape": b"out"}),
    "plan.md: is not there": lambda m: m.pop(f"{RUN_ID}/plan.md"),
    "what was signed": lambda m: m.update({"manifest.json": m["manifest.json"].replace(b'"program"', b'"program" ')}),
    "was changed after it was written": another_journal,
    "more than once": twice,
}


def test_every_change_to_an_export_is_named_and_what_is_none_or_only_half_of_one_is_refused(
    file: Path, tmp_path: Path
) -> None:
    unseen = [says for says, change in CHANGES.items() if says not in verify_file(changed(file, change)).text]
    assert unseen == []
    whole = file.read_bytes()
    for content in (b"", b"no archive", b"PK\x05\x06" + bytes(18), whole[: len(whole) // 2]):
        (tmp_path / "no.zip").write_bytes(content)
        with pytest.raises(Misconfigured, match="is not an archive, or it is damaged"):
            verify_file(tmp_path / "no.zip")
    file.write_bytes(bytes([*whole[:900], whole[900] ^ 255, *whole[901:]]))
    assert "its hash differs" in verify_file(file).text


def test_a_file_of_very_many_names_is_judged_in_a_moment_or_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb: each name is looked up among all others."""
    names = {f"{RUN_ID}/{number}": b"" for number in range(20_000)}
    many = changed(file, lambda members: members.update(names))
    began = time.process_time()
    assert len(verify_file(many).facts["flaws"]) == 20_000
    assert time.process_time() - began < 3.0
    monkeypatch.setattr(archive_format, "MOST_NAMES", 10_000)
    with pytest.raises(Misconfigured, match="an archive has at most"):
        verify_file(many)


async def test_an_artifact_that_is_nowhere_is_left_out_of_an_export_by_name_and_a_refused_login_is_told_as_that(
    config: Path, folder: Path
) -> None:
    (folder / "artifacts" / "critique.md").write_text("another")
    made = await export(config, RUN_ID, config.parent / "it.zip")
    assert (made.ok, "which is away" in made.text) == (False, True)
    verdict = verify_file(config.parent / "it.zip")
    assert (verdict.ok, f"without {RUN_ID}/artifacts/critique.md" in verdict.text) == (True, True)
    shutil.rmtree(folder)
    set_section(config, "nats", {"urls": ["nats://127.0.0.1:1"], "creds_file": str(config.parent / "none")})
    with pytest.raises(Misconfigured, match=r"credentials file .* cannot be read"):
        await verify(RUN_ID, config)


async def test_the_runs_that_a_run_started_go_along(tmp_path: Path) -> None:
    parent = run_at(PARENT)
    child = child_of(parent) >> cancel()
    config = await recorded(tmp_path / "family", parent >> cancel() >> comes_home(child), {})
    async with opened(config.parent / "agent") as store:
        await stored(store, commits_of(child))
    made = await export(config, RUN_ID, tmp_path)
    assert list(made.facts["runs"].values()) == ["cancelled", "cancelled"]
    assert verify_file(tmp_path / f"{RUN_ID}.zip").ok


async def test_a_run_that_goes_on_while_it_is_exported_is_exported_as_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await recorded(tmp_path / "open", run_at("run waiting"), {})
    *_, message, cancelled = commits_of(run_at("run waiting ; message hurry ; cancel"))

    async def overtaken(reader: StoreReader, run_id: str) -> object:
        async with opened(config.parent / "agent") as store:
            await store.commit(message)
            checked = await checked_journal(reader, run_id)
            await store.commit(cancelled)
        return checked

    monkeypatch.setattr(writing, "checked_journal", overtaken)
    made = await export(config, RUN_ID, tmp_path / "it.zip")
    assert ("had not ended" in made.text, verify_file(Path(made.facts["file"])).facts["flaws"]) == (True, [])
