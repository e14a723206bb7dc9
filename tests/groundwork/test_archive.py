"""Archives are authenticated or refused; a later backup holds only new content, and unused content is deleted. Keys and
signatures are made once, followed by newer ones without a start, and never shown."""

import errno
import stat
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Barrier

import pytest

from groundwork.archive.format import Archive, open_writer
from groundwork.archive.series import Series
from groundwork.service import keys
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.keys import Key, KeyRing, public_of, read, signature, verifies, write
from tests.kit.runs import NOON

RING = KeyRing.fresh()
CONTENT = Random(1).randbytes(300_000)  # noqa: S311 - a content that no compression makes small


def series(folder: Path) -> Series:
    return Series(f"{folder}/backups/", "agentic")


def back_up(folder: Path, files: dict[str, bytes], day: int = 0, ring: KeyRing = RING) -> Path:
    with series(folder).new_archive(ring, NOON + timedelta(days=day)) as (_, archive):
        for name, content in files.items():
            archive.add(name, content)
    return archive.path


def restored(path: Path) -> dict[str, bytes]:
    with Archive.open(path) as archive:
        archive.prove(RING)
        return {name: archive.read(name) for name in archive.manifest.files}


def test_a_later_backup_holds_what_is_new_and_rests_on_an_earlier_one_until_half_of_it_is_new(tmp_path: Path) -> None:
    first = back_up(tmp_path, {"a": CONTENT, "again": CONTENT})
    second = back_up(tmp_path, {"b": CONTENT, "c": b"new"}, 1)
    assert second.stat().st_size < 2_000 < first.stat().st_size < 1.1 * len(CONTENT)
    assert restored(second) == {"b": CONTENT, "c": b"new"}
    with series(tmp_path).open(None) as (name, archive):
        assert (archive.path, f"agentic-{name}.zip") == (second, second.name)
    third = back_up(tmp_path, {"d": CONTENT, "e": CONTENT[::-1]}, 2)
    fourth = back_up(tmp_path, {"f": CONTENT}, 3)
    sizes = [path.stat().st_size > len(CONTENT) for path in (third, fourth)]
    assert sizes == [True, True], "the fourth rests on none"
    first.unlink()
    assert restored(fourth) == {"f": CONTENT}
    with pytest.raises(Misconfigured, match="on which others rest"):
        restored(second)


def test_what_only_older_backups_need_goes_with_them(tmp_path: Path) -> None:
    first = back_up(tmp_path, {"a": CONTENT})
    (of_a_killed_one := first.with_name("agentic-1.zip.part-x")).mkdir()
    (of_a_killed_one / "gateway.zip").touch()
    (of_another := first.with_name("photos.zip.part")).touch()
    made = [back_up(tmp_path, {"a": CONTENT, "b": str(day).encode()}, day) for day in (1, 2)]
    series(tmp_path).keep_only(1)
    assert sorted(first.parent.iterdir()) == [first, made[1], of_another], "the first, for the newest rests on it"
    assert restored(made[1])["b"] == b"2"


def test_an_included_archive_proves_itself(tmp_path: Path) -> None:
    other, ring = tmp_path / "gateway.zip", KeyRing.fresh()
    with open_writer(other, ring) as inner:
        inner.add("rows", CONTENT)
        inner.add("store.id", b"of the gateway")
    with open_writer(tmp_path / "it.zip", RING) as outer, Archive.open(other) as ledger:
        outer.add("store.id", b"of the agent")
        outer.include("gateway", ledger)
    with Archive.open(tmp_path / "it.zip") as archive:
        included = archive.nested("gateway")
        assert included
        included.prove(ring)
        assert included.read("rows") == CONTENT
        assert (archive.read("store.id"), included.read("store.id")) == (b"of the agent", b"of the gateway")
        assert archive.nested("others") is None


def test_a_backup_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    back_up(tmp_path, {"a": b"a"})
    with (
        pytest.raises(Misconfigured, match=r"has no backup 20250101 of agentic: it has 2\d{7}T"),
        series(tmp_path).open("20250101"),
    ):
        pass


def test_a_backup_of_other_keys_is_not_rested_on(tmp_path: Path) -> None:
    back_up(tmp_path, {"a": CONTENT})
    later = back_up(tmp_path, {"a": CONTENT}, 1, ring=KeyRing.fresh())
    assert later.stat().st_size > len(CONTENT)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_archive_is_told_wherever_the_damage_is(tmp_path: Path, seed: int) -> None:
    path, chance = back_up(tmp_path, {"a": b"small", "b": b"other"}), Random(seed)  # noqa: S311 - the same each time
    damaged = bytearray(path.read_bytes())
    for _ in range(50):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    path.write_bytes(damaged)
    with suppress(Failure), Archive.open(path) as archive:  # nothing else may come of it
        list(archive.flaws())
        archive.prove(RING)


def test_of_two_archives_that_are_made_at_once_under_one_name_the_first_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "it.zip"
    slow = ExitStack()
    slow.enter_context(open_writer(path, RING))
    with open_writer(path, RING) as archive:
        archive.add("a", CONTENT)
    with pytest.raises(Misconfigured, match="nothing is overwritten"):
        slow.close()
    assert restored(path) == {"a": CONTENT}
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_removed_while_a_backup_cannot_be_read(tmp_path: Path) -> None:
    first, second, third = (back_up(tmp_path, {"a": CONTENT, "b": str(day).encode()}, day) for day in range(3))
    third.write_bytes(b"no archive")
    series(tmp_path).keep_only(1)
    assert sorted(first.parent.iterdir()) == [first, second, third]


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ('{"format": 2, "files": 7}', "newer version"),
        ('{"program": "x", "at": "2026-01-01T00:00:00", "files": {}}', "json is damaged"),
        ("{", "json is damaged"),
    ],
)
def test_a_manifest_that_is_none_is_told_in_plain_words(tmp_path: Path, manifest: str, told: str) -> None:
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as made:
        made.writestr("manifest.json", manifest)
    with pytest.raises(Misconfigured, match=told):
        restored(tmp_path / "it.zip")


SEED, OTHER = b"s" * 32, b"o" * 32
SAID = b"agent.completed\n{}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "agent.keys"


def test_those_who_make_a_ring_at_the_same_moment_have_the_same_for_its_owner_alone(file: Path) -> None:
    together = Barrier(8)

    def opened(_: int) -> str:
        together.wait()
        return KeyRing.open(file).keys[0].mac("p", ["a"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(opened, range(8)))) == 1
    assert list(file.parent.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_ring_that_another_makes_meanwhile_is_not_replaced_where_the_file_system_has_no_links(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = (Key.fresh(),)

    def made_by_another(*_: object) -> None:
        write(file, theirs)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", made_by_another)
    with pytest.raises(Misconfigured, match="cannot be read or written"):
        KeyRing.open(file)
    assert read(file) == theirs


def test_a_proof_is_of_its_purpose_and_its_parts_alone(file: Path) -> None:
    ring = KeyRing.open(file)
    proof = ring.keys[0].mac("capability", ["run", "1", b"tool"])
    assert ring.checks(proof, "capability", "run", "1", "tool")
    for others in (("seal", "run", "1", "tool"), ("capability", "run", "1t", "ool")):
        assert not ring.checks(proof, *others)
    assert not ring.checks(proof, "capability", "run", "1", "tool", "")


def test_a_newer_key_makes_and_the_older_ones_still_check_without_a_start(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOOK_EVERY_S", 0.0)
    ring = KeyRing.open(file)
    before = ring.keys[0].mac("p", ["a"])
    newer = Key.fresh()
    write(file, (newer, *read(file)))
    assert ring.keys[0].mac("p", ["a"]).startswith(newer.id)
    assert ring.checks(before, "p", "a")
    write(file, (newer,))
    assert not ring.checks(before, "p", "a")

    def read_before_a_change(path: Path) -> tuple[Key, ...]:
        found = read(path)
        write(file, (Key.fresh(), *found))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(keys, "read", read_before_a_change)
        ring = KeyRing.open(file)
    assert not ring.keys[0].mac("p", ["a"]).startswith(newer.id)


@pytest.mark.parametrize("content", ["", "k1 now\n", "k1 now zz\n", f"k1 now {'ab' * 31}\n", "\x00\xff\n"])
def test_a_file_of_something_else_is_refused_without_a_word_of_it(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(Misconfigured, match=str(file)) as refusal:
        KeyRing.open(file)
    assert "abab" not in str(refusal.value)


@pytest.mark.parametrize(
    ("public", "signed", "message"),
    [
        (public_of(OTHER), signature(SEED, SAID), SAID),
        (public_of(SEED), signature(OTHER, SAID), SAID),
        (public_of(SEED), signature(SEED, SAID), SAID + b" "),
        (public_of(SEED), signature(SEED, SAID)[:-1], SAID),
        (public_of(SEED), signature(SEED, SAID) + "=", SAID),
        (public_of(SEED), "", SAID),
        (public_of(SEED), "ü" * 86, SAID),
        ("", signature(SEED, SAID), SAID),
        ("A" * 43, signature(SEED, SAID), SAID),
        (public_of(SEED), "A" * 86, SAID),
    ],
)
def test_nothing_else_is_taken_for_a_signature(public: str, signed: str, message: bytes) -> None:
    assert not verifies(public, signed, message)
