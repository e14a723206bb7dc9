"""The plugin that looks at a Ductile's own jobs."""

from pathlib import Path

import pytest

from tests.ductile.fake import FakeDuctile, behaviours
from tests.ductile.under_test import client, finished
from tests.plugins.asking import SHIPPED, ask


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("http://ductile.example.org", "reader", "the token would go to ductile.example.org without TLS: use https"),
        ("ftp://127.0.0.1", "reader", "url must be that of Ductile's API"),
        ("", "caller", "Ductile answered 403: the token needs the scope jobs:ro"),
        ("", "reader", "Ductile's log has no job none"),
    ],
)
def test_what_cannot_be_told_is_said_with_what_to_do(tmp_path: Path, url: str, token: str, told: str) -> None:
    with FakeDuctile() as fake:
        (tmp_path / "token").write_text(f"{fake.tokens[token]}\n")
        config = {"url": url or fake.url, "token_file": str(tmp_path / "token")}
        answer = ask(SHIPPED / "ductile-look", {"job_id": "none"}, command="job", config=config)
    assert (answer["status"], answer["retry"]) == ("error", False)
    assert answer["error"].startswith(told)
    assert fake.tokens[token] not in answer["error"]


def test_an_error_without_end_hides_neither_its_job_nor_the_others(tmp_path: Path) -> None:
    with FakeDuctile() as fake, client(fake) as http:
        fake.on("probe", "note", behaviours.fails("x" * 3_000_000, retry=False))
        ids = [http.post(f"/plugin/probe/{name}", json={"payload": {}}).json()["job_id"] for name in ("look", "note")]
        for job_id in ids:
            finished(fake, job_id)
        (tmp_path / "token").write_text(fake.token)
        config = {"url": fake.url, "token_file": str(tmp_path / "token")}
        listed = ask(SHIPPED / "ductile-look", {}, command="jobs", config=config)
        told = ask(SHIPPED / "ductile-look", {"job_id": ids[1]}, command="job", config=config)
    assert all(job_id in listed["result"] for job_id in ids)
    assert "[cut: 3000000 characters]" in told["result"]
