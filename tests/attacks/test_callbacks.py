"""Callbacks into the house: nobody can have the gateway knock at a door that they cannot reach themselves."""

import pytest

from tests.attacks.doors import HttpDoor
from tests.attacks.kit import attack


@pytest.fixture
def target(door: HttpDoor) -> HttpDoor:
    return door


@attack(70, 71, 72, 74)
@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[::1]/",
        "https://0.0.0.0/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://169.254.169.254/latest",
        "https://[fd00:ec2::254]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://10.0.0.7/",
        "https://me@93.184.216.34/",
        "http://93.184.216.34/",
        "https://93.184.216.34:6379/",
        "gopher://93.184.216.34/",
    ],
)
async def test_a_callback_into_the_house(target: HttpDoor, url: str) -> bool:
    answer = await target.ask("POST", "/v1/wake", json={"goal": "echo x", "callback": url})
    return answer.status_code == 202
