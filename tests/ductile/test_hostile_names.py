"""Names that would lead elsewhere, and arguments that would pass for ours: refused, with a reason, and never sent."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import Unacceptable, read_request
from ductile_gateway.ductile.answers import DuctileRefused
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.settings import DuctileSettings
from schemas.catalog import Catalog, ToolCommand, ToolOffer
from schemas.events import RESERVED_KEYS
from tests.ductile.fake import FakeDuctile
from tests.ductile.runner_house import gateway
from tests.gateway.parts import World, a_request, message_of, outcomes

NAMES = (
    "../pipeline/x",
    "..",
    ".",
    "",
    "a?b",
    "a#b",
    "a/b",
    "a%2fb",
    "a\\b",
    "foo.>",
    "foo.*",
    "*",
    ">",
    "a b",
    "a\nb",
    "a\r\nHost: b",
    "a\0b",
    "A",
    "\uff41",
    "ä",
    "-a",
    "x" * 65,
    "x" * 5000,
)
PROBE = ToolOffer(name="probe", route="probe", commands=(ToolCommand(name="note", tier="write"),))


def told(body: bytes, **changed: Any) -> bytes:
    """The request with other fields, which no model of ours would let through."""
    message = json.loads(body)
    message["payload"] |= changed
    return json.dumps(message).encode()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["tool", "tool_command"])
def test_a_request_with_such_a_name_is_never_taken(field: str, name: str) -> None:
    subject, body, headers = message_of(a_request("note", {}, tool="probe"), "probe")
    with pytest.raises(Unacceptable) as refusal:
        read_request(subject, told(body, **{field: name}), headers)
    assert field in str(refusal.value)
    assert len(str(refusal.value)) < 1500


@pytest.mark.parametrize("name", NAMES)
def test_a_route_of_such_a_name_is_never_taken(name: str) -> None:
    _, body, headers = message_of(a_request("note", {}, tool="probe"), "probe")
    with pytest.raises(Unacceptable):
        read_request(f"agentic.tool_request.{name}", body, headers)


@pytest.mark.parametrize("name", NAMES)
async def test_the_way_to_ductile_itself_builds_no_url_of_such_a_name(name: str) -> None:
    async def nothing(request: httpx2.Request) -> httpx2.Response:
        raise AssertionError(request.url)

    settings = DuctileSettings.model_validate({"url": "http://localhost:1", "token": "t"})
    async with open_api(settings, httpx2.MockTransport(nothing)) as api:
        ways = (
            api.start(name, "note", {}),
            api.start("probe", name, {}),
            api.start_pipeline(name, {}),
            api.plugin(name),
        )
        for way in ways:
            with pytest.raises(DuctileRefused, match="not a legal name"):
                await way


HOSTILE = [
    (a_request("handle", {}, tool="probe"), "not_allowed"),  # a command that Ductile has and we do not offer
    (a_request("note", {}, tool="fetch"), "not_allowed"),
    *((a_request("note", {name: "x"}, tool="probe"), "invalid_arguments") for name in sorted(RESERVED_KEYS)),
    (a_request("note", {"RUN_ID": "x"}, tool="probe"), "invalid_arguments"),
]


async def test_what_is_not_on_offer_or_passes_for_ours_is_refused_and_the_rest_is_run(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    async with gateway(fake, tmp_path) as runner:
        for step, (asked, refusal) in enumerate((*HOSTILE, (a_request("note", {}, tool="probe"), "ok")), start=1):
            world = World(runner=runner)
            world.clock.time = datetime.now(UTC)
            request = read_request(*message_of(asked.model_copy(update={"step": step}), "probe"))
            await world.relay(Catalog(revision="1", tools=(PROBE,))).take(request)
            assert outcomes(world) == [refusal], asked
            assert len(fake.executions) == (refusal == "ok")
