"""The plugin that looks at a Ductile's own jobs."""

from pathlib import Path
from typing import Any

import pytest

from tests.ductile.calling import called, finished
from tests.ductile.fake import FakeDuctile, fails, prints
from tests.plugins.asking import SHIPPED, ask

LOOK = SHIPPED / "ductile-look"


@pytest.fixture
def token_file(fake: FakeDuctile, tmp_path: Path) -> Path:
    file = tmp_path / "look.token"
    file.write_text(f"{fake.tokens['reader']}\n")
    return file


@pytest.fixture
def fake() -> Any:
    with FakeDuctile() as made:
        yield made


def look(url: str, token_file: Path, command: str, **payload: Any) -> dict[str, Any]:
    return ask(LOOK, payload, command=command, config={"url": url, "token_file": str(token_file)})


def test_a_job_that_has_failed_is_told_with_its_error(fake: FakeDuctile, token_file: Path) -> None:
    fake.on("probe", "note", fails("no space left", retry=False))
    job_id = called(fake)
    finished(fake, job_id)
    told = look(fake.url, token_file, "job", job_id=job_id)
    assert (told["output"], "no space left" in told["result"]) == ({"found": 1}, True)
    assert look(fake.url, token_file, "jobs", plugin="probe")["output"] == {"found": 1}


def test_a_job_whose_output_is_no_json_is_told_all_the_same(fake: FakeDuctile, token_file: Path) -> None:
    fake.on("probe", "note", prints(b"no JSON", stderr="disk on fire"))
    job_id = called(fake)
    finished(fake, job_id)
    assert "disk on fire" in look(fake.url, token_file, "job", job_id=job_id)["result"]


def test_what_this_ductile_does_not_tell_is_said_and_no_error(fake: FakeDuctile, token_file: Path) -> None:
    told = look(fake.url, token_file, "system")
    assert '"/topology": "not told (404)"' in told["result"]
    assert "queue_depth" in told["result"]


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("http://ductile.example.org", "reader", "the token would go to ductile.example.org without TLS: use https"),
        ("ftp://127.0.0.1", "reader", "url must be that of Ductile's API"),
        ("", "caller", "Ductile answered 403: the token needs the scope jobs:ro"),
        ("", "reader", "Ductile's log has no job none"),
    ],
)
def test_what_cannot_be_told_is_said_with_what_to_do(
    fake: FakeDuctile, token_file: Path, url: str, token: str, told: str
) -> None:
    token_file.write_text(fake.tokens[token])
    answer = look(url or fake.url, token_file, "job", job_id="none")
    assert (answer["status"], answer["retry"]) == ("error", False)
    assert answer["error"].startswith(told)
    assert fake.tokens[token] not in answer["error"]
