"""A third party starts runs by webhook: at the gateway, as GitHub and as Standard Webhooks sign, and at Ductile's own.

The webhooks are those that docs/DUCTILE.md shows, and webhooks.yaml of the sample configuration.
"""

import base64
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import pytest

from tests.ductile.circle import Circle, real_ductile, running
from tests.ductile.sample_house import CMS_SECRET, GITHUB_SECRET, WEBHOOK_SECRET
from tests.kit.waiting import wait_until

pytestmark = real_ductile


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    with running(tmp_path_factory.mktemp("circle")) as made:
        yield made


def post(url: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
    return httpx2.post(url, content=body, headers={"Content-Type": "application/json", **headers}, trust_env=False)


def github(circle: Circle, event: Any, *, delivery: str) -> httpx2.Response:
    body = json.dumps(event).encode()
    signature = hmac.new(GITHUB_SECRET.encode(), body, "sha256").hexdigest()
    headers = {"X-GitHub-Event": "issues", "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": f"sha256={signature}"}
    return post(f"{circle.ingress}/webhooks/github", body, headers)


def cms(circle: Circle, event: Any, *, message_id: str, sent_at: float) -> httpx2.Response:
    body, at = json.dumps(event).encode(), str(int(sent_at))
    signed = b".".join((message_id.encode(), at.encode(), body))
    key = base64.b64decode(CMS_SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    headers = {"webhook-id": message_id, "webhook-timestamp": at, "webhook-signature": f"v1,{signature}"}
    return post(f"{circle.ingress}/webhooks/cms", body, headers)


def order(circle: Circle, content: Any) -> httpx2.Response:
    body = json.dumps(content).encode()
    signature = hmac.new(WEBHOOK_SECRET.encode(), body, "sha256").hexdigest()
    return post(circle.house.orders, body, {"X-Ductile-Signature-256": f"sha256={signature}"})


def issue(circle: Circle, name: str) -> dict[str, Any]:
    """The event of an issue that was opened."""
    return {"action": "opened", "issue": {"html_url": f"{circle.page}?{name}", "title": "It leaks"}}


def kept(circle: Circle, name: str) -> str:
    """The run that the event started, of which Ductile keeps the outcome."""
    run_id = circle.started(f"?{name}")
    assert circle.ended(run_id)["state"] == "done"
    assert circle.outcome(run_id).endswith("\n\nThe last tool was text-report.\n")
    return run_id


def test_an_issue_at_github_starts_one_run_however_often_it_is_delivered(circle: Circle) -> None:
    answers = [github(circle, issue(circle, "issue"), delivery=delivery) for delivery in ("d-1", "d-1", "d-2")]
    assert [answer.status_code for answer in answers] == [202, 200, 200]
    run_id = kept(circle, "issue")
    assert circle.run(run_id)["goal"] == f"Fetch {circle.page}?issue and write down what the reporter needs."
    assert circle.with_goal("?issue") == [run_id]


def test_a_standard_webhook_starts_one_run_however_often_it_is_sent(circle: Circle) -> None:
    event = {"type": "page.published", "data": {"url": f"{circle.page}?published"}}
    answers = [cms(circle, event, message_id="msg_1", sent_at=time.time() - late) for late in (0, 60)]
    assert [answer.status_code for answer in answers] == [202, 200]
    run_id = kept(circle, "published")
    assert circle.with_goal("?published") == [run_id]


def test_an_order_by_ductiles_own_webhook_is_a_job_each_time_and_one_run(circle: Circle) -> None:
    content = {"goal": f"Fetch {circle.page}?ordered and write a critique.", "wake_id": "order-4711"}
    jobs = [order(circle, content).json()["job_id"] for _ in range(2)]
    assert len(set(jobs)) == 2
    run_id = kept(circle, "ordered")

    def accepted() -> bool:
        found = [circle.house.ask("GET", f"/job/{job}").json() for job in jobs]
        return [job.get("result", {}).get("output", {}).get("run_id") for job in found] == [run_id] * 2

    wait_until(accepted, lambda: str(circle.house.jobs("agentic-wake")))
    assert circle.with_goal("?ordered") == [run_id]
