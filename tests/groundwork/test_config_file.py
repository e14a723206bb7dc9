"""The settings: file, environment and secret files become one model, or one error that names every problem."""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, JsonValue, SecretStr, field_validator

from groundwork.service.config_file import Section, WrongSettings, load, written
from groundwork.service.secret import Secret

SECRET = "hunter2-hunter2"  # noqa: S105 - it opens nothing
HOSTILE = "x\n  name: injected\n${HOME}"
"""Adds no key, and is not read again."""


class Http(Section):
    port: int = Field(default=8080, ge=1)
    hosts: tuple[str, ...] = ()
    token: Secret | None = None

    @field_validator("token")
    @classmethod
    def no_blank(cls, token: SecretStr | None) -> SecretStr | None:
        if token and " " in token.get_secret_value():
            raise ValueError(f"{token.get_secret_value()} has a blank")
        return token


class Nats(Section):
    url: str = "nats://localhost"
    name: str = ""


class Tool(Section):
    tier: Literal["read", "write"]
    key: Secret | None = None


class Agent(Section):
    http: Http = Http()
    nats: Nats = Nats()
    tools: dict[str, Tool] = Field(default_factory=dict)
    keys: tuple[Tool, ...] = ()
    limit: int | None = None
    wait_s: float = 1.0
    inbox: Annotated[str, written("_INBOX.*", "_INBOX, or _INBOX.NAME")] = ""
    ca_file: Path | None = None
    model: str | list[str] = ""
    few: Annotated[dict[str, JsonValue], Field(min_length=1)] = Field(default_factory=dict)


Read = Callable[..., Agent]


@pytest.fixture
def read(tmp_path: Path) -> Read:

    def read(text: str, *, environ: Mapping[str, str] | None = None) -> Agent:
        path = tmp_path / "agentic.yaml"
        path.write_text(text)
        return load(Agent, "agent", path, environ or {}, other_sections={"gateway"})

    return read


def problems(read: Read, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(WrongSettings) as caught:
        read(text, environ=environ)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return [problem.rpartition("/")[2] for problem in caught.value.problems]


def test_the_shared_nats_section_fills_what_the_own_one_leaves_open(read: Read) -> None:
    settings = read("nats: {url: nats://shared, name: shared}\nagent: {nats: {name: own}}\n")
    assert settings.nats == Nats(url="nats://shared", name="own")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${HOST}", "bus"),
        ("nats://${HOST}:${PORT:-4222}/", "nats://bus:4222/"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${UNSET:-}", ""),
        ("${UNSET:-a:-b}", "a:-b"),
        ("$${HOST} $HOST {HOST}", "${HOST} $HOST {HOST}"),
        ("${HOSTILE}", HOSTILE),
    ],
)
def test_variables_stand_in_values(read: Read, value: str, expected: str) -> None:
    settings = read(f"agent: {{nats: {{url: '{value}'}}}}", environ={"HOST": "bus", "EMPTY": "", "HOSTILE": HOSTILE})
    assert settings.nats == Nats(url=expected)


def test_the_environment_overrides_the_file_and_the_shared_section(read: Read) -> None:
    settings = read(
        "nats: {url: a}\nagent: {http: {port: 1, hosts: [x]}, limit: 5}",
        environ={
            "AGENT_HTTP__PORT": "2",
            "AGENT_NATS__URL": "b",
            "AGENT_TOOLS__FETCH__TIER": "read",
            "AGENT_HTTP__HOSTS": '["y", "z"]',
            "OTHER_HTTP__PORT": "3",
        },
    )
    assert (settings.http.port, settings.nats.url, settings.http.hosts, settings.limit) == (2, "b", ("y", "z"), 5)
    assert settings.tools["fetch"].tier == "read"


def test_a_secret_comes_from_a_file_at_every_depth(read: Read, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"  {SECRET}\n")
    text = f"agent: {{http: {{token_file: {file}}}, keys: [{{tier: read, key_file: {file}}}]}}"
    settings = read(text, environ={"AGENT_TOOLS__A__KEY_FILE": str(file), "AGENT_TOOLS__A__TIER": "read"})
    for secret in (settings.http.token, settings.keys[0].key, settings.tools["a"].key):
        assert secret is not None
        assert secret.get_secret_value() == SECRET


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        *((None, "(No such file"), (b"\xff", "no UTF-8"), (b" \n", "empty")),
        (f"{SECRET} with blanks".encode(), "is not accepted here"),
    ],
)
def test_a_secret_file_without_a_readable_secret_is_an_error(
    read: Read, tmp_path: Path, content: bytes | None, fault: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    (problem,) = problems(read, f"agent: {{http: {{token_file: {tmp_path / 'secret'}}}}}")
    assert problem.startswith("agentic.yaml: agent.http.token_file: ")
    assert fault in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agnet: {}", "agnet: no such setting; did you mean agent?"),
        ("agent: {http: {prot: 1}}", "agent.http.prot: no such setting; did you mean port?"),
        ("agent: {tools: {a: {tier: read, x: 1}}}", "agent.tools.a.x: no such setting; known here: key, tier"),
        ("agent: {keys: [{tier: read, x_file: 1}]}", "agent.keys.0.x_file: no such setting; known here: key, tier"),
        ("nats: {x: 1}", "nats.x: no such setting; known here: name, url"),
        ("agent: {8080: x}", "no such setting"),
        ("agent: {http: 5}", "agent.http: must be settings, as `key: value` lines"),
        *((f"agent: {{ca_file: {path}}}", "agent.ca_file: must be a path, as text") for path in ("[a]", "''")),
        ("agent: {http: {token: [a]}}", "agent.http.token: must be text, in quotes"),
        (f"agent: {{http: {{port: '{'9' * 5000}'}}}}", "agent.http.port: must be a whole number"),
        ("agent: {model: 5}", "agent.model: must be text, in quotes; or must be a list"),
        *((f"agent: {{wait_s: {number}}}", "agent.wait_s: must be a number") for number in (".inf", "-.inf", ".nan")),
        ("agent: {http: {port: 0}}", "agent.http.port: must be at least 1"),
        ("agent: {few: {}}", "agent.few: must have at least 1 item"),
        ("agent: {few: {'A': 2026-01-01}}", "agent.few.A: must be text, in quotes"),
        ("agent: {tools: {a: {tier: look}}}", "agent.tools.a.tier: must be 'read' or 'write'"),
        ("agent: {inbox: INBOX}", "agent.inbox: has to be _INBOX, or _INBOX.NAME"),
        ("agent: {limit: yes}", "agent.limit: must be a whole number"),
        ("agent: &a {http: *a}", "its *aliases come to more than 200,000 values: write out what is meant"),
        ("agent: {tools: {a: {}}}", "agent.tools.a.tier: required; set it here"),
        ("agent: {limit: '${NO}'}", "agent.limit: NO is not set; set it in the environment"),
        ("agent: {limit: '${a-b}'}", "agent.limit: write ${NAME} or ${NAME:-default}"),
        ("agent: 5", "agent: expected settings as `key: value` lines"),
        ("- a", "top level: expected settings"),
        ("agent: {a: b", "not valid YAML at line 1, column 13"),
        *(
            (f"agent: {{at: {odd}}}", "not valid YAML")
            for odd in ("2026-13-45", "!!bool a", "!!int ''", "!!timestamp a")
        ),
        ("agent: {keys: [{}]}", "agent.keys.0.tier: required; set it here"),
        ("agent: {}\nagent: {}", "a key is given twice at line 2, column 1: keep one of them"),
        ("agent: {keys: [{tier: read, tier: read}]}", "a key is given twice at line 1, column 29"),
    ],
)
def test_a_problem_of_the_file_names_place_and_remedy(read: Read, text: str, expected: str) -> None:
    (problem,) = problems(read, text)
    assert expected in problem
    assert problem.startswith("agentic.yaml")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("AGENT_HTTP__PROT", "1", "AGENT_HTTP__PROT: no such setting; did you mean port?"),
        ("AGENT_HTTP__PORT", "x", "AGENT_HTTP__PORT: must be a whole number"),
        ("AGENT_HTTP__HOSTS", "a,b", "AGENT_HTTP__HOSTS: must be a list, as in ["),
        ("AGENT_HTTP__HOSTS__0", "a", "AGENT_HTTP__HOSTS__0: must be a list, as in ["),
    ],
)
def test_a_problem_of_the_environment_names_the_variable(read: Read, variable: str, value: str, expected: str) -> None:
    (problem,) = problems(read, "agent: {http: {hosts: [x]}}", {variable: value})
    assert expected in problem


@pytest.mark.parametrize(
    "text",
    [
        f"agent: {{http: {{token: '{SECRET} '}}}}",
        f"agent: {{http: {{token: [{SECRET}]}}}}",
        f"agent: {{http: {{port: {SECRET}}}}}",
        f"agent: {{http: {{token: *{SECRET}}}}}",
        f"agent: {{http: {{token: !{SECRET}}}}}",
        f"agent: {{http: {{token: {SECRET}: x}}}}",
        f"agent: {{http: {{token: '{SECRET}}}}}",
        f"agent: {{http: {{token: '{SECRET}${{a-{SECRET}}}'}}}}",
        f"agent: {{http: {{token: '{SECRET}', token_file: x}}}}",
        f"agent: {{http: {{token_file: {SECRET}}}}}",
    ],
)
def test_no_problem_shows_a_value(read: Read, text: str) -> None:
    assert problems(read, text)


@pytest.mark.parametrize(("value", "fault"), [("", "is empty"), (" \t ", "is empty"), ("x", "is too short")])
def test_a_secret_that_is_empty_or_soon_guessed_is_refused_wherever_it_comes_from(
    read: Read, tmp_path: Path, value: str, fault: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(value)
    for text, environ, place in (
        ("agent: {http: {token: '${VALUE}'}}", {"VALUE": value}, "agent.http.token"),
        (f"agent: {{http: {{token: '${{UNSET:-{value}}}'}}}}", {}, "agent.http.token"),
        ("agent: {tools: {a: {tier: read, key: '${VALUE}'}}}", {"VALUE": value}, "agent.tools.a.key"),
        (f"agent: {{http: {{token_file: {file}}}}}", {}, "agent.http.token_file"),
        ("", {"AGENT_HTTP__TOKEN": value}, "AGENT_HTTP__TOKEN"),
        ("", {"AGENT_HTTP__TOKEN_FILE": str(file)}, "AGENT_HTTP__TOKEN_FILE"),
    ):
        (problem,) = problems(read, text, environ)
        assert f"{place}: {fault}" in problem


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def fault(path: Path) -> str:
        with pytest.raises(WrongSettings) as caught:
            load(Agent, "agent", path, {})
        return str(caught.value)

    assert f"{tmp_path / 'none.yaml'}: cannot be read (No such file or directory)" in fault(tmp_path / "none.yaml")
    assert "Is a directory" in fault(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("agent: {nats: {name: ü}}".encode("latin-1"))
    assert "is not UTF-8" in fault(latin)
