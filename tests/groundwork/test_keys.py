"""Keys and signatures: made once, followed by newer ones without a start, never shown."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from groundwork.service import keys
from groundwork.service.errors import Misconfigured
from groundwork.service.keys import Key, KeyRing, public_of, read, signature, verifies, write

SEED, OTHER = b"s" * 32, b"o" * 32
SAID = b"agent.completed\n{}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "agent.keys"


def test_those_who_make_a_ring_at_the_same_moment_have_the_same_for_its_owner_alone(file: Path) -> None:
    together = Barrier(8)

    def opened(_: int) -> str:
        together.wait()
        return KeyRing.open(file).mac("p", "a")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(opened, range(8)))) == 1
    assert list(file.parent.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_proof_is_of_its_purpose_and_its_parts_alone(file: Path) -> None:
    ring = KeyRing.open(file)
    proof = ring.mac("capability", "run", "1", b"tool")
    assert ring.checks(proof, "capability", "run", "1", "tool")
    for others in (("seal", "run", "1", "tool"), ("capability", "run", "1t", "ool")):
        assert not ring.checks(proof, *others)
    assert not ring.checks(proof, "capability", "run", "1", "tool", "")


def test_a_newer_key_makes_and_the_older_ones_still_check_without_a_start(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOOK_EVERY_S", 0.0)
    ring = KeyRing.open(file)
    before = ring.mac("p", "a")
    newer = Key.fresh()
    write(file, (newer, *read(file)))
    assert ring.mac("p", "a").startswith(newer.id)
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
    assert not ring.mac("p", "a").startswith(newer.id)


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
