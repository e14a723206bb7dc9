"""`agentic eval` as its users run it."""

import json
from pathlib import Path

from tests.cli.calling import agentic_here
from tests.evaluation.small import written
from tests.models.fake_anthropic import FakeAnthropic


def test_what_did_not_pass_is_told_beneath_and_in_the_exit_code(tmp_path: Path) -> None:
    written(tmp_path, expect={"status": ["failed"], "never_say": ["It is on."]})
    called = agentic_here("eval", "--folder", tmp_path, "--scenario", "small", "--scenario", "page-critique")
    assert called.code == 1
    assert "1 of 2 passed" in called.out
    told = called.out.partition("✗ small: A small one")[2]
    assert "expected status failed; it is done; the last entry, 6, says: 'The lamp is on.'" in told
    assert "never say: 'It is on.' is in agent.progress" in told


def test_a_model_that_cannot_be_asked_fails_each_scenario_with_the_reason(tmp_path: Path) -> None:
    fake, file = FakeAnthropic(), tmp_path / "agentic.yaml"
    model = {"provider": "anthropic", "api_key": "sk-wrong-0123456789", "base_url": fake.base_url}
    file.write_text(json.dumps({"agent": {"model": model}}))
    called = agentic_here("eval", "--config", file, "--scenario", "page-critique")
    fake.close()
    assert called.code == 1
    assert called.out.startswith("model: none answered\n")
    assert "✗ model_auth" in called.out
    assert "it is failed; the last entry" in called.out
    assert "sk-wrong" not in called.out + called.err
