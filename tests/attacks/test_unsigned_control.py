"""Somebody who may publish cancels and signals, where the operator has named keys for them. The twin has none."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from groundwork.service.ed25519 import public_of, signature
from schemas import subjects
from schemas.headers import SIGNATURE
from schemas.signing import header, signed
from tests.attacks.kit import attack
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.waiting import until

OPERATOR, STRANGER = b"o" * 32, b"s" * 32


@dataclass
class Controlled:
    """A run that waits for its tool, and `shop`, who may control it."""

    made: Bench
    run_id: str
    protected: bool

    async def heard(self, subject: str, payload: dict[str, object], headers: dict[str, str] | None = None) -> bool:
        """Whether the run took notice."""
        seen, before = len(self.made.rejected), await self._version()
        await self.made.client.jetstream().publish(subject, json.dumps(payload).encode(), headers=headers)

        async def is_dealt_with() -> bool:
            return len(self.made.rejected) > seen or await self._version() > before

        await until(is_dealt_with, within_s=20)
        return await self._version() > before

    async def _version(self) -> int:
        return len((await self.made.get(f"/v1/runs/{self.run_id}/entries")).json()["entries"])

    def message(self, text: str = "hurry") -> dict[str, object]:
        return {"run_id": self.run_id, "signal_id": text, "kind": "message", "message": text}


def by(seed: bytes, subject: str, payload: dict[str, object], name: str = "shop") -> dict[str, str]:
    return {SIGNATURE: header(name, signature(seed, signed(subject, json.dumps(payload).encode())))}


@pytest.fixture
async def target(side: str, tmp_path: Path) -> AsyncIterator[Controlled]:
    keys = [{"name": "shop", "public": public_of(OPERATOR)}] if side == "ours" else []
    async with bench(tmp_path, one_step("look"), control_keys=keys) as made:
        await made.wake("controlled")
        run_id = (await made.request(1))["run_id"]
        controlled = Controlled(made, run_id, side == "ours")
        yield controlled
        if controlled.protected:  # and whoever has the key is heard
            said = controlled.message("goodbye")
            assert await controlled.heard(subjects.SIGNAL, said, by(OPERATOR, subjects.SIGNAL, said))


@attack(97)
async def test_a_cancel_without_a_signature(target: Controlled) -> bool:
    return await target.heard(subjects.CANCEL, {"run_id": target.run_id})


@attack(97)
async def test_a_word_without_a_signature(target: Controlled) -> bool:
    return await target.heard(subjects.SIGNAL, target.message())


@attack(97)
async def test_a_word_that_a_stranger_signed(target: Controlled) -> bool:
    said = target.message()
    return await target.heard(subjects.SIGNAL, said, by(STRANGER, subjects.SIGNAL, said))


@attack(97)
async def test_the_signature_of_another_word(target: Controlled) -> bool:
    return await target.heard(
        subjects.SIGNAL, target.message(), by(OPERATOR, subjects.SIGNAL, target.message("take your time"))
    )


@attack(97)
async def test_a_signal_that_is_passed_off_as_a_cancel(target: Controlled) -> bool:
    said = target.message()
    return await target.heard(subjects.CANCEL, said, by(OPERATOR, subjects.SIGNAL, said))


@attack(97)
async def test_a_cancel_by_request(target: Controlled) -> bool:
    answer = await target.made.client.request("agentic-loop.cancel", json.dumps({"run_id": target.run_id}).encode())
    return "error" not in json.loads(answer.data)
