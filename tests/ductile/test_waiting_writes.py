"""A write that waits for its Ductile, in the real gateway: who cancels its run is sure that it is not made."""

import json
from pathlib import Path
from typing import Any

from schemas import subjects
from schemas.status import GatewayStatus
from tests.ductile.gateway_house import House, ending, house, kill
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.on_nats import send
from tests.gateway.parts import RUN, a_request
from tests.kit.waiting import until

EXECUTOR = "ductile-gateway"


async def says(home: House, state: str) -> Any:
    """An agent that says so of every run."""

    async def tell(message: Any) -> None:
        await message.respond(json.dumps({"status": state}).encode())

    return await home.link.subscribe(subjects.RUN_STATUS, tell)


async def waits(home: House) -> bool:
    status = GatewayStatus.model_validate_json(await home.link.request(subjects.STATUS, b""))
    return [(call.run_id, call.step) for call in status.waiting] == [(RUN, 1)]


async def test_a_write_that_waits_is_not_made_once_its_run_is_cancelled_also_after_a_restart_of_the_gateway(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    async with house(tmp_path, ductile) as home:
        agent = await says(home, "running")
        async with home.living() as process:
            ductile.kill()
            await send(home.link, a_request("note", {}, tool="probe", executor=EXECUTOR), "probe")
            await until(lambda: waits(home), within_s=30)
            await agent.unsubscribe()
            await says(home, "cancelled")
            kill(process)
        ductile.start()
        async with home.living():
            await until(lambda: home.has_results(1), within_s=30)
        assert [ending(result) for result in await home.results()] == ["expired"]
    assert not ductile.executions
