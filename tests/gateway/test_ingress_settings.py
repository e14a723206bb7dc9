"""Settings of the ingress: what is refused before anything listens."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from ductile_gateway.ingress.settings import IngressSettings
from groundwork.service import config_file
from tests.gateway.ingress_house import PEERS, SECRET

START = {"to": "agentic.start", "goal": "Go."}
SIGNAL = {"to": "agentic.signal", "run_id": "/run"}


def hook(**changed: Any) -> dict[str, Any]:
    return {"webhooks": {"x": {"scheme": "github", "keys": [{"secret": SECRET}], "events": {"*": START}} | changed}}


def test_nothing_listens_unless_a_peer_or_a_webhook_is_there() -> None:
    assert not IngressSettings().listens()
    assert IngressSettings.model_validate({"peers": PEERS}).listens()
    assert IngressSettings.model_validate(hook()).listens()


@pytest.mark.parametrize(
    "wrong",
    [
        hook(keys=[]),
        hook(keys=[{"secret": ""}]),
        hook(keys=[{"secret": "  "}]),
        hook(keys=[{"secret": "fifteen letters"}]),
        hook(keys=[{"secret": SECRET}, {"secret": ""}]),
        hook(scheme="standard"),
        hook(scheme="standard", keys=[{"secret": "whsec_MTIz"}]),
        hook(scheme="none"),
        hook(events={}),
        hook(events={"*": {"to": "agentic.tool_request", "goal": "Go."}}),
        hook(events={"*": {"to": "agent.completed"}}),
        hook(events={"*": START | {"goal": ""}}),
        hook(events={"*": START | {"context": {"a": "no/pointer"}}}),
        hook(events={"*": START | {"run_id": "/run"}}),
        hook(events={"*": SIGNAL | {"kind": "approve"}}),
        hook(events={"*": SIGNAL | {"kind": "answer"}}),
        hook(events={"*": SIGNAL | {"kind": "message"}}),
        hook(events={"*": SIGNAL | {"kind": "raise_budget"}}),
        hook(events={"*": SIGNAL | {"kind": "answer", "message": "Go.", "constraints": {"max_depth": "/n"}}}),
        # What is believed, from anybody's hand.
        hook(events={"*": SIGNAL | {"kind": "answer", "message": "Go.", "constraints": {"max_steps": "/n"}}}),
        hook(events={"*": SIGNAL | {"kind": "answer", "message": "Go.", "outcome": "/outcome"}}),
        {"peers": {"x": {"keys": [{"secret": SECRET}], "accept": []}}},
        {"peers": {"X": {"keys": [{"secret": SECRET}], "accept": ["agentic.start"]}}},
        {"peers": {"x": PEERS["ductile-test"]}} | hook(),
        {"peers": {"x": PEERS["ductile-test"] | {"accept": ["agentic.start"]}}},
        {"peers": {"x": PEERS["ductile-test"] | {"events": {"agentic.start": START}}}},
        {"port": 70_000},
        {"remember_days": 1},
    ],
)
def test_what_would_let_anybody_in_or_anything_out_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        IngressSettings.model_validate(wrong)
    assert SECRET not in str(caught.value)


def test_secrets_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file of its own\n")
    keys = [{"id": "v1", "secret_file": str(tmp_path / "secret")}, {"id": "v2", "secret": "${NEXT}"}]
    settings = loaded(tmp_path, {"peers": {"ductile-test": {"keys": keys, "accept": ["agentic.start"]}}})
    assert settings.secrets() == ("from a file of its own", "from the environment")
    assert "from" not in repr(settings)


def loaded(tmp_path: Path, ingress: dict[str, Any]) -> IngressSettings:
    path = tmp_path / "ingress.yaml"
    path.write_text(yaml.safe_dump(ingress))
    environ = {"NEXT": "from the environment"}
    return config_file.load(IngressSettings, path=path, section=None, env_prefix="INGRESS_", environ=environ)
