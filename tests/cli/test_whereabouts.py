"""Which agent a command is for, where nobody names one: that of the configuration in the folder it is typed in."""

from pathlib import Path

import pytest

from agent_service.cli import whereabouts
from agent_service.cli.whereabouts import HERE, address_of
from ductile_gateway.cli.exits import settings_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AGENTIC_URL", "AGENT_HTTP__HOST", "AGENT_HTTP__PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "url", "whence"),
    [
        ("agent: {http: {port: 9000}}", "http://127.0.0.1:9000", "as agent.http of agentic.yaml says"),
        (
            "agent: {http: {host: '::', port: '${PORT:-9001}'}}",
            "http://[::1]:9001",
            "as agent.http of agentic.yaml says",
        ),
        ("agent: {http: {host: 0.0.0.0}}", HERE, "as agent.http of agentic.yaml says"),
        ("agent: {turns: 2}", HERE, "the default"),
        ("agent: {http: {port: 0}}", HERE, "the default, for agentic.yaml names no port in agent.http"),
        (
            "agent: {http: {host: 203.0.113.7}}",
            HERE,
            "the default, for agentic.yaml names no address of this machine in agent.http",
        ),
        (
            "agent: {http: {host: agents.example}}",
            HERE,
            "the default, for agentic.yaml names no address of this machine in agent.http",
        ),
        ("agent: {http: {port: 1}, http: {}}", HERE, "the default, for agentic.yaml cannot be read"),
        ("agent: []", HERE, "the default"),
    ],
)
def test_the_configuration_here_names_the_agent_if_it_is_one_of_this_machine(
    folder: Path, settings: str, url: str, whence: str
) -> None:
    (folder / "agentic.yaml").write_text(settings)
    found = address_of("")
    assert (found.url, found.whence) == (url, whence)


def test_a_file_that_is_there_and_leads_nowhere_is_no_reason_for_the_defaults(folder: Path) -> None:
    (folder / "agentic.yaml").symlink_to("nowhere")
    found = (whereabouts.own(None), whereabouts.nearby(None), settings_file(None))
    assert found == (Path("agentic.yaml"),) * 3


def test_what_is_said_goes_before_the_environment_and_that_before_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "agentic.yaml").write_text("agent: {http: {port: 9000}}")
    monkeypatch.setenv("AGENT_HTTP__PORT", "9001")
    assert address_of("").url == "http://127.0.0.1:9001"
    monkeypatch.setenv("AGENTIC_URL", "http://there:1")
    assert address_of("http://there:1").whence == "as AGENTIC_URL says"
    assert address_of("http://there:2").whence == "as --url says"
