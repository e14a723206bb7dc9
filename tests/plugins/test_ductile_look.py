"""The plugin that looks at a Ductile's own jobs."""

from pathlib import Path
from typing import Any

import pytest

from tests.ductile.fake import FakeDuctile
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
