"""Signatures that anybody can check: of this message, by this key, and of nothing else."""

import subprocess
import sys

import pytest

from groundwork.service.keys import public_of, signature, verifies

SEED, OTHER = b"s" * 32, b"o" * 32
SAID = b"agent.completed\n{}"


def test_the_known_answer_of_rfc_8032_comes_out() -> None:
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    assert public_of(seed) == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert signature(seed, b"").startswith("5VZDAMNgrHKQ")


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


def test_the_library_is_not_loaded_with_the_module() -> None:
    told = "import sys, groundwork.service.keys; print('nacl' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", told], text=True).strip() == "False"
