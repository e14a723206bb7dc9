"""schemas/generated is what the models say, and `--check` notices when it is not."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from schemas import generate
from schemas.generate import ANSWERED
from tests.schemas import samples

EVERY_SAMPLE = pytest.mark.parametrize("path", samples.PATHS, ids=samples.title)
EVENTS = [path for path in samples.PATHS if samples.event_of(path) not in ANSWERED]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generate.write(tmp_path)
    return tmp_path


def spoil(folder: Path) -> None:
    (folder / "agentic.start.v1.json").write_text("{}\n")
    (folder / "agent.failed.v1.json").unlink()
    (folder / "agentic.old.v1.json").write_text("{}\n")


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_committed_files_are_fresh() -> None:
    assert generate.differences(generate.GENERATED) == []


def test_there_is_one_schema_per_event_one_asyncapi_document_and_the_accounts_of_a_server(folder: Path) -> None:
    expected = {f"{name}.v1.json" for name in generate.MODELS} | {"asyncapi.json", "nats-accounts.conf"}
    assert listing(folder).keys() == expected


def test_the_check_names_what_differs_is_missing_or_is_extra_and_the_remedy(folder: Path) -> None:
    spoil(folder)
    with pytest.raises(SystemExit) as refusal:
        generate.main(["--check"], folder)
    assert str(refusal.value).splitlines()[1:] == [
        "  differs: agentic.start.v1.json",
        "  extra: agentic.old.v1.json",
        "  missing: agent.failed.v1.json",
        "Run `python -m schemas.generate` and commit it.",
    ]


@pytest.mark.parametrize("name", generate.MODELS)
def test_every_schema_is_one_of_draft_2020_12(name: str) -> None:
    schema = json.loads((generate.GENERATED / f"{name}.v1.json").read_bytes())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(schema)


@EVERY_SAMPLE
def test_a_reader_with_this_version_tolerates_fields_of_a_later_one(path: Path) -> None:
    def grown(value: Any) -> Any:
        return {"added_later": 1} | {k: grown(v) for k, v in value.items()} if isinstance(value, dict) else value

    samples.published(samples.event_of(path)).validate(grown(samples.body(path)))


@pytest.mark.parametrize(
    ("event", "field", "value"),
    [
        ("agentic.start", "goal", 5),
        ("agentic.start", "run_id", "../etc"),
        ("agentic.tool_result", "status", "maybe"),
        ("agentic.tool_result", "completed_at", "2026-W01-1"),
        ("agentic.tool_result", "step", 0),
        ("agentic.tool_request", "tool", "foo.>"),
        ("agent.progress", "phase", "ponder"),
    ],
)
def test_a_schema_refuses_a_wrong_value(event: str, field: str, value: object) -> None:
    published = samples.published(event)
    assert published.is_valid(json.loads(samples.changed(event)))
    assert not published.is_valid(json.loads(samples.changed(event, **{field: value})))
