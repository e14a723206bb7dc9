"""`verify` and `export` without an agent: every change is told, and a file of a run proves itself."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_service.archive import writing
from agent_service.archive.access import StoreReader
from agent_service.archive.verifying import checked_journal, verify, verify_file
from agent_service.archive.writing import export
from groundwork.archive import format as archive_format
from groundwork.service.errors import Exit, Misconfigured, NotDone
from tests.cli.invoke import agentic_here
from tests.cli.stores import SHELF, Members, changed, contents, named_anew, opened, recorded, set_section, tampered
from tests.core.cues import RUN_ID, cancel, child_of, comes_home
from tests.core.script import commits_of
from tests.core.words import PARENT, run_at
from tests.kit.runs import run_id
from tests.ports.stores import stored
from tests.projections.journals import entries_of, pages_of, worked_example


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    """Configuration of a store with one run whose folder is written. No bus answers."""
    return await recorded(tmp_path / "here", worked_example(), SHELF)


@pytest.fixture
def folder(config: Path) -> Path:
    return config.parent / "workspaces" / RUN_ID


@pytest.fixture
async def file(config: Path, tmp_path: Path) -> Path:
    return Path((await export(config, RUN_ID, tmp_path / "it.zip")).facts["file"])


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
    named_anew(members, journal, members[journal].replace(b"2 paragraphs", b"3 paragraphs"))


CHANGES: dict[str, Callable[[Members], object]] = {
    "critique.md: is not what was written": lambda m: m.update({f"{RUN_ID}/artifacts/critique.md": b"better"}),
    "notes.txt: is not a file of this archive": lambda m: m.update({f"{RUN_ID}/notes.txt": b"mine"}),
    "escape: is not a file of this archive": lambda m: m.update({"../../escape": b"out"}),
    "plan.md: is not there": lambda m: m.pop(f"{RUN_ID}/plan.md"),
    "what was signed": lambda m: m.update({"manifest.json": m["manifest.json"].replace(b'"program"', b'"program" ')}),
    "was changed after it was written": another_journal,
    "more than once": lambda m: named_anew(m, "runs.jsonl", 2 * m["runs.jsonl"]),
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
