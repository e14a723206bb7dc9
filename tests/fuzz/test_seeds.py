"""Seeds, old findings and their neighbours: nothing that strangers send is a surprise."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

SEEDS = Path(__file__).parent / "seeds"
PIECES = (
    *(b"\0", b"\xff", b"\\ud800", b"1e999", b"NaN", b"[" * 99, b'"', b"\n", b"{}", b"null", b"9" * 400, b"../"),
    *(b"\r\n", b" "),
)


def seeds(target: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted((SEEDS / target).iterdir())]


def every_seed() -> Iterator[object]:
    for target in TARGETS:
        for file in sorted((SEEDS / target).iterdir()):
            yield pytest.param(target, file.read_bytes(), id=f"{target}/{file.name}")


@pytest.mark.attack
@pytest.mark.parametrize(("target", "seed"), list(every_seed()))
def test_a_seed_is_taken_or_refused(target: str, seed: bytes) -> None:
    TARGETS[target](seed)


@pytest.mark.attack
@pytest.mark.parametrize("target", TARGETS)
@given(data=st.data())
def test_what_is_like_a_seed_is_taken_or_refused(target: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(seeds(target)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(seed)))
        gone = data.draw(st.integers(0, 16))
        piece = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from(PIECES), st.sampled_from(seeds(target))))
        seed = seed[:at] + piece + seed[at + gone :]
    TARGETS[target](seed)
