"""Secrets of the stand, looked for wherever the program writes anything."""

from pathlib import Path

import pytest

from tests.attacks.deliveries import IngressDoor
from tests.attacks.doors import HttpDoor
from tests.attacks.stand import KEYS, STANDARD_KEY, TOKENS, Stand

SECRETS = (*TOKENS.values(), *KEYS.values(), STANDARD_KEY)
GIVEN = {"agentic.yaml"}
"""Where whoever set it up wrote them."""


@pytest.mark.attack(60, 61, 64)
async def test_no_secret_is_in_any_file_after_it_was_used_guessed_and_refused(stand: Stand) -> None:
    door = HttpDoor(url=stand.api, protected=True, token=TOKENS["operator"])
    run_id = await door.begin(f"echo {'x' * 10}")
    for token in (TOKENS["operator"][:-1], TOKENS["reader"], f"{TOKENS['waker']}x"):
        wrong = HttpDoor(url=stand.api, protected=True, token=token)
        await wrong.ask("POST", f"/v1/runs/{run_id}/cancel", json={})
        await wrong.get(f"/v1/runs?token={token}")
    ingress = IngressDoor(door=HttpDoor(url=stand.ingress, protected=True))
    await ingress.takes_github(ingress.body())
    await ingress.takes_standard(ingress.body(), webhook_signature="v1,wrong")
    await ingress.takes_relayed({"type": "agentic.start", "payload": {"goal": "echo x"}}, secret=KEYS["github"])
    assert [str(file) for file in written(stand.folder) if leaks(file)] == []


def written(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and file.name not in GIVEN]


def leaks(file: Path) -> list[str]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:  # NATS has removed a block of messages meanwhile
        return []
    return [secret for secret in SECRETS if secret.encode() in content]
