"""Seeds, old findings and variations of them: no bytes of strangers are a surprise."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
SEEDS = ROOT / "tests" / "fuzz" / "seeds"
SHIPPED = {"manifest": "deploy/ductile/plugins/*/manifest.yaml", "envelope": "schemas/samples/agentic.*.json"}
"""Shipped files that are seeds too; an envelope has an empty first line of headers above it."""
PIECES = (
    *(b"\0", b"\xff", b"\\ud800", b"1e999", b"NaN", b"[" * 99, b'"', b"\n", b"{}", b"null", b"9" * 400, b"../"),
    *(b"\r\n", b" "),
)


@cache
def seeds(target: str) -> list[bytes]:
    kept = [file.read_bytes() for file in sorted((SEEDS / target).glob("*"))]
    head = b"\n" if target == "envelope" else b""
    return kept + [head + file.read_bytes() for file in sorted(ROOT.glob(SHIPPED.get(target, "none")))]


@pytest.mark.attack
@pytest.mark.parametrize("target", TARGETS)
def test_a_seed_is_taken_or_refused(target: str) -> None:
    assert seeds(target)
    for seed in seeds(target):
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
