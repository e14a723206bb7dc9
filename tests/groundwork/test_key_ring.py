"""Keys that make and check proofs: made once, followed by newer ones, never shown."""

import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest

from groundwork.service.errors import Misconfigured
from groundwork.service.keys import Key, KeyRing, read, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "agent.keys"


def test_a_ring_is_made_once_for_its_owner_alone(file: Path) -> None:
    ring = KeyRing.open(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert KeyRing.open(file).mac("p", "a") == ring.mac("p", "a")


def test_those_who_make_a_ring_at_the_same_moment_have_the_same(file: Path) -> None:
    together = Barrier(8)

    def opened(_: int) -> str:
        together.wait()
        return KeyRing.open(file).mac("p", "a")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(opened, range(8)))) == 1
    assert list(file.parent.iterdir()) == [file]


def test_a_proof_is_of_its_purpose_and_its_parts_alone(file: Path) -> None:
    ring = KeyRing.open(file)
    proof = ring.mac("capability", "run", "1", b"tool")
    assert ring.checks(proof, "capability", "run", "1", "tool")
    assert not ring.checks(proof, "seal", "run", "1", "tool")
    assert not ring.checks(proof, "capability", "run", "1t", "ool")
    assert not ring.checks(proof, "capability", "run", "1", "tool", "")


def test_a_newer_key_makes_and_the_older_ones_still_check_without_a_start(file: Path) -> None:
    seconds = count()
    ring = KeyRing.open(file, clock=lambda: float(next(seconds)))
    before = ring.mac("p", "a")
    newer = Key.fresh()
    write(file, (newer, *read(file)))
    assert ring.mac("p", "a").startswith(newer.id)
    assert ring.checks(before, "p", "a")
    write(file, (newer,))
    assert not ring.checks(before, "p", "a")


@pytest.mark.parametrize("content", ["", "k1 now\n", "k1 now zz\n", f"k1 now {'ab' * 31}\n", "\x00\xff\n"])
def test_a_file_of_something_else_is_refused_without_a_word_of_it(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(Misconfigured) as refusal:
        KeyRing.open(file)
    assert str(file) in str(refusal.value)
    assert "abab" not in str(refusal.value)
