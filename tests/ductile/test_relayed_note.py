"""A route of events as docs/DUCTILE.md shows it, in a real Ductile: one note for one call, however often it is sent."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ductile.conftest import NO_BINARY
from tests.ductile.real import RealDuctile
from tests.ductile.runner_house import a_call, gateway, outcome
from tests.ductile.sample_house import guide_listener, guide_relay
from tests.ductile.under_test import Peer
from tests.ductile.wires import LossyWire

pytestmark = [
    pytest.mark.ductile,
    pytest.mark.skipif(not os.environ.get("DUCTILE_BIN"), reason=NO_BINARY),
]

EVENT = "agentic.tool_request.save-note"


@dataclass(frozen=True, slots=True)
class NoteHouse:
    """A Ductile whose plugin save-note keeps what it is told, in `folder`."""

    ductile: RealDuctile
    folder: Path

    @property
    def notes(self) -> list[str]:
        return [file.read_text() for file in self.folder.glob("*.txt")]

    @property
    def relay(self) -> dict[str, object]:
        peer, routes = self.ductile.peer, guide_relay()["ductile"]["relay"]["routes"]
        return {"peer": peer.name, "key_id": peer.key_id, "secret": peer.secret, "routes": routes}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[NoteHouse]:
    folder, notes = tmp_path / "ductile", tmp_path / "notes"
    folder.mkdir()
    notes.mkdir()
    peer = Peer()
    known = {"name": peer.name, "enabled": True, "secret_ref": "relay", "key_id": peer.key_id, "accept": [EVENT]}
    listening = {"listen_path": "/ingest/peer", "max_body_size": "256KB", "allowed_clock_skew": "5m"}
    peers = [known | {"baggage": {"allow": ["run_id", "step", "tool"]}}]
    changed = {
        "relay-ingress.yaml": {"remote_ingress": listening | {"require_key_id": True, "peers": peers}},
        "plugins.yaml": {"plugins": {"save-note": {"enabled": True, "config": {"folder": str(notes)}}}},
        "pipelines.yaml": guide_listener(),
    }
    plugin = Path(__file__).parent / "save-note"
    with contextlib.closing(RealDuctile(os.environ["DUCTILE_BIN"], folder, further=changed, probe=plugin)) as real:
        yield NoteHouse(real, notes)


async def test_a_note_is_kept_and_ductiles_context_says_for_whom(house: NoteHouse, tmp_path: Path) -> None:
    call = a_call("handle", plugin="save-note", text="Grüße")
    async with gateway(house.ductile, tmp_path, relay=house.relay) as runner:
        found = outcome(await runner.run(call))
    run_id, step, tool, _ = call.key.split(":")
    context = found.output["context"]
    assert (found.status, found.text, house.notes) == ("ok", "kept", ["Grüße"])
    assert isinstance(context, dict)
    assert (context["run_id"], context["step"], context["tool"]) == (run_id, int(step), tool)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_note_whose_event_is_sent_three_times_is_kept_once(
    house: NoteHouse, tmp_path: Path, waits: bool
) -> None:
    wire = LossyWire(house.ductile, lost=2, waits=waits)
    relay = house.relay | {"again_first_s": 0.05}
    async with gateway(house.ductile, tmp_path, relay=relay, wire=wire) as runner:
        found = outcome(await runner.run(a_call("handle", plugin="save-note", text="once")))
    assert (found.status, house.notes) == ("ok", ["once"])
    assert len(wire.sent) == 3
