"""A backup file keeps each block once, tells what is damaged, and gives up what nothing needs."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

from groundwork.backup.archive import Archive
from groundwork.backup.files import pieces_of, write_out
from groundwork.backup.told import Part, Whole
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.keys import KeyRing

RING = KeyRing.fresh()
CONTENT = bytes(range(256)) * 1000


def back_up(place: Path, backup: str, content: bytes = CONTENT, ring: KeyRing = RING) -> int:
    """The bytes that it wrote."""
    with Archive.to_write(place) as archive:
        part = Part(part="agent", at="", program="", files=(archive.keep("runs.db", pieces_of(content)),))
        archive.tell(backup, part, ring)
        archive.complete(Whole(backup=backup, at="", parts={"agent": archive.digest(backup, "agent")}), ring)
        return archive.written


def restored(place: Path, backup: str, target: Path) -> bytes:
    with Archive.to_read(place) as archive:
        part = archive.part(backup, "agent", RING)
        assert part
        write_out(archive, part.files[0], target)
    return target.read_bytes()


def test_what_only_older_backups_need_goes_with_them(tmp_path: Path) -> None:
    place = tmp_path / "b"
    back_up(place, "1", b"old" * 100_000)
    back_up(place, "2")
    with Archive.to_write(place) as archive:
        archive.forget_all_but(1)
        assert archive.backups() == ["2"]
    with closing(sqlite3.connect(place)) as connection:
        held = [digest for (digest,) in connection.execute("SELECT hash FROM blocks")]
    with Archive.to_read(place) as archive:
        part = archive.part("2", "agent", RING)
        assert part
        assert {digest.hex() for digest in held} == set(part.files[0].blocks)
    assert restored(place, "2", tmp_path / "out") == CONTENT


def test_the_newest_with_a_part_stays_for_as_long_as_later_ones_are_without_it(tmp_path: Path) -> None:
    place = tmp_path / "b"
    for backup in ("1", "2", "3", "4"):
        back_up(place, backup, backup.encode())
        with Archive.to_write(place) as archive:
            if backup < "3":
                archive.tell(backup, Part(part="artifacts", at="", program=""), RING)
            archive.forget_all_but(1)
            assert archive.having("artifacts")
    with Archive.to_read(place) as archive:
        assert (archive.backups(), archive.having("artifacts")) == (["4", "2"], ["2"])
    assert restored(place, "2", tmp_path / "out") == b"2"


def test_a_backup_that_was_not_said_to_be_whole_does_not_count(tmp_path: Path) -> None:
    with Archive.to_write(tmp_path / "b") as archive:
        archive.tell("1", Part(part="agent", at="", program=""), RING)
    with Archive.to_read(tmp_path / "b") as archive:
        assert archive.backups() == []
        with pytest.raises(Misconfigured, match="no whole backup 1"):
            archive.whole("1", RING)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE blocks SET content = zeroblob(3)",
        "DELETE FROM blocks",
        "UPDATE told SET seal = 'k.x' WHERE part = 'agent'",
        "UPDATE told SET text = (SELECT text FROM told WHERE part = 'whole') WHERE part = 'agent'",
    ],
)
def test_what_was_changed_is_not_restored(tmp_path: Path, change: str) -> None:
    place = tmp_path / "b"
    back_up(place, "1")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(change)
    with pytest.raises(Misconfigured, match=r"is damaged|was changed by other hands"):
        restored(place, "1", tmp_path / "out")


def test_a_backup_of_other_keys_and_a_file_that_is_none_are_refused_in_words(tmp_path: Path) -> None:
    back_up(tmp_path / "b", "1", ring=KeyRing.fresh())
    with pytest.raises(Misconfigured, match="of another installation"):
        restored(tmp_path / "b", "1", tmp_path / "out")
    (tmp_path / "text").write_text("nats: {}\n" * 100)
    with pytest.raises(Misconfigured, match="is no backup"), Archive.to_write(tmp_path / "text"):
        pass
    with closing(sqlite3.connect(tmp_path / "other")) as connection, connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(Misconfigured, match="is no backup"), Archive.to_write(tmp_path / "other"):
        pass


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_told_wherever_the_damage_is(tmp_path: Path, seed: int) -> None:
    place, chance = tmp_path / "b", Random(seed)  # noqa: S311 - damage that is the same each time
    back_up(place, "1", b"small")
    damaged = bytearray(place.read_bytes())
    for _ in range(50):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    place.write_bytes(damaged)
    with suppress(Failure), Archive.to_write(place) as archive:  # nothing else may come of it
        for backup in archive.backups():
            archive.unproved(backup, "agent")
            archive.whole(backup, RING)
        archive.forget_all_but(1)


def test_keys_go_into_no_file_that_others_may_read(tmp_path: Path) -> None:
    back_up(tmp_path / "b", "1")
    (tmp_path / "b").chmod(0o640)
    with pytest.raises(Misconfigured, match="chmod 600"), Archive.to_write(tmp_path / "b", with_keys=True):
        pytest.fail("it was opened")
