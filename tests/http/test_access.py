"""Who may call what: every route of the table, with every token."""

from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from agent_service.admission.callers import HttpSettings, Scope, TokenSettings
from agent_service.api.access import Access
from agent_service.settings import load
from groundwork.service.errors import Misconfigured
from groundwork.service.secret import FileSecret
from tests.http import raw
from tests.http.house import TOKENS, House, known_token, open_house, secret
from tests.kit.runs import whole_run
from tests.kit.waiting import until

RULES: dict[tuple[str, str], Scope | None] = {
    ("POST", "/v1/wake"): "wake",
    ("GET", "/v1/runs"): "read",
    ("GET", "/v1/counts"): "read",
    ("GET", "/v1/runs/{run_id}"): "read",
    ("GET", "/v1/runs/{run_id}/entries"): "read",
    ("GET", "/v1/runs/{run_id}/events"): "read",
    ("GET", "/v1/events"): "read",
    ("GET", "/v1/runs/{run_id}/timeline"): "read",
    ("GET", "/v1/tools"): "read",
    ("GET", "/v1/inbox"): "read",
    ("GET", "/v1/health"): "read",
    ("GET", "/v1/runs/{run_id}/why"): "read",
    ("POST", "/v1/runs/{run_id}/dismiss"): "control",
    ("GET", "/v1/dead-letters"): "read",
    ("POST", "/v1/dead-letters/{seq}/retry"): "operate",
    ("POST", "/v1/dead-letters/{seq}/discard"): "operate",
    ("GET", "/v1/runs/{run_id}/steps/{step}"): "read",
    ("GET", "/v1/runs/{run_id}/calls/{call}"): "read",
    ("GET", "/v1/runs/{run_id}/workspace"): "read",
    ("GET", "/v1/runs/{run_id}/workspace/{path:path}"): "read",
    ("POST", "/v1/runs/{run_id}/cancel"): "control",
    ("POST", "/v1/runs/{run_id}/signals"): "control",
    ("POST", "/v1/runs/{run_id}/approvals"): "control",
    ("POST", "/v1/runs/{run_id}/answers"): "control",
    ("GET", "/v1/whoami"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/openapi.json"): "read",
    ("GET", "/docs"): "read",
    ("POST", "/v1/stop-all"): "operate",
    ("POST", "/v1/go-on"): "operate",
    ("GET", "/v1/drain"): "read",
    ("POST", "/v1/drain"): "operate",
    ("POST", "/v1/prune"): "operate",
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/"): None,
    ("GET", "/page/{path:path}"): None,
}
BODIES = {
    "/v1/wake": {"goal": "x"},
    "/v1/runs/{run_id}/signals": {"kind": "resume"},
    "/v1/runs/{run_id}/approvals": {"decision": "reject"},
    "/v1/runs/{run_id}/answers": {"answer": "x"},
    "/v1/stop-all": {"reason": "x"},
    "/v1/drain": {"within_s": 1},
}


class Uncompared(str):
    """A digest that whoever guesses by time would like to see compared letter by letter."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared as ordinary text is, which ends at the first letter that differs")

    __hash__ = str.__hash__


class Guessed(TokenSettings):
    """Inherits for its digest."""

    def digest(self) -> str:
        return Uncompared(super().digest())


@pytest.mark.attack(34)
async def test_tokens_are_compared_in_constant_time(tmp_path: Path) -> None:
    ann = Guessed(name="ann", token=SecretStr("the-token-of-ann-here"))
    async with open_house(tmp_path, tokens=(ann,)) as house, house.client(None) as client:
        for token, status in (("the-token-of-ann-here", 200), ("the-token-of-ann-herf", 401), ("x" * 21, 401)):
            answer = await client.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == status


@pytest.mark.attack(60)
async def test_a_token_is_changed_by_writing_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("the-old-token-of-ann", encoding="utf-8")
    anns = TokenSettings(name="ann", token=FileSecret(file))
    async with open_house(tmp_path, tokens=(anns,)) as house, house.client(None) as client:

        async def status(token: str) -> int:
            return (await client.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})).status_code

        assert await status("the-old-token-of-ann") == 200
        file.write_text("the-new-token-of-ann", encoding="utf-8")

        async def taken() -> bool:
            return await status("the-new-token-of-ann") == 200

        await until(taken)
        assert await status("the-old-token-of-ann") == 401


def test_every_route_has_a_rule(house: House) -> None:
    assert house.table().keys() == RULES.keys()


async def call(client: httpx2.AsyncClient, method: str, path: str, run_id: str) -> httpx2.Response:
    url = path.replace("{run_id}", run_id).replace("{path:path}", "plan.md")
    url = url.replace("{step}", "1").replace("{call}", "1").replace("{seq}", "1")
    headers = {"Last-Event-ID": "none"} if path == "/v1/events" else {}  # refused, or it would never end
    return await client.request(method, url, json=BODIES.get(path, {}) if method == "POST" else None, headers=headers)


@pytest.mark.parametrize("token", [*TOKENS, "stranger", None])
async def test_only_a_token_with_the_scope_of_a_route_may_call_it(house: House, token: str | None) -> None:
    run_id, known = await house.play(whole_run()), token in TOKENS
    for (method, path), scope in RULES.items():
        async with house.client(token) as client:
            answer = await call(client, method, path, run_id)
        if scope is None or scope in TOKENS.get(token or "", ()):
            assert answer.status_code not in (401, 403), path
            continue
        assert answer.status_code == (403 if known else 401), path
        assert answer.json()["error"]["code"] == ("forbidden" if known else "unauthorized")
        assert ("www-authenticate" in answer.headers) == (not known)
        assert secret("stranger") not in answer.text


WRONG_HEADERS = [
    f"authorization: bearer {secret('admin')}", f"authorization: BEARER {secret('admin')}",
    f"authorization: Bearer  {secret('admin')}", f"authorization: Bearer\t{secret('admin')}",
    f"authorization: Bearer {secret('admin')}x", f"authorization: Bearer {secret('admin')[:-1]}",
    f"authorization: Bearer {secret('admin').upper()}", f"authorization: Basic {secret('admin')}",
    f"authorization: {secret('admin')}", "authorization: Bearer ", "authorization: ",
    "authorization: Bearer " + "x" * 20_000, "authorization: Bearer \xff\xfe",
    f"authorization: Bearer {secret('admin')}\r\nauthorization: Bearer {secret('admin')}",
    f"authorization: Bearer {secret('admin')}, Bearer {secret('admin')}",
    f"x-authorization: Bearer {secret('admin')}", f"cookie: authorization=Bearer {secret('admin')}",
]  # fmt: skip


@pytest.mark.parametrize("header", WRONG_HEADERS)
async def test_a_token_comes_in_one_way_only(port: int, header: str) -> None:
    assert (await raw.get(port, "/v1/runs", f"Host: 127.0.0.1\r\n{header}\r\n")).status == 401
    assert (await raw.get(port, "/v1/runs")).status == 200


async def test_who_may_not_call_is_told_so_before_the_body_is_read(house: House) -> None:
    async with house.client("reader") as client:
        for content, kind in ((b"[" * 300_000, "application/json"), (b"x", "text/plain"), (b"", "")):
            answer = await client.post("/v1/wake", content=content, headers={"Content-Type": kind})
            assert answer.status_code == 403


async def test_who_may_not_call_is_not_told_which_runs_there_are(house: House) -> None:
    run_id = await house.play(whole_run())
    async with house.client("waker") as client:
        answers = [await client.get(f"/v1/runs/{run}") for run in (run_id, "run_unknown")]
    assert {answer.status_code for answer in answers} == {403}
    assert len({frozenset(told(answer).items()) for answer in answers}) == 1


def told(refused: httpx2.Response) -> dict[str, str]:
    """What a refusal says, without the name that each has."""
    return {part: str(said) for part, said in refused.json().items() if part != "instance"}


async def test_a_token_can_be_configured_by_its_hash(tmp_path: Path) -> None:
    hashed = TokenSettings(name="hashed", scopes=TOKENS["reader"], sha256=known_token("reader").digest())
    async with open_house(tmp_path, tokens=(hashed,)) as house:
        for token, status in (("reader", 200), ("admin", 401)):
            async with house.client(token) as client:
                assert (await client.get("/v1/runs")).status_code == status


@pytest.mark.parametrize("token", ["", " ", "x", " " * 40, "fifteen letters"])
def test_an_api_with_a_token_that_is_soon_guessed_does_not_open(token: str) -> None:
    for given in ({"token": SecretStr(token)}, {"sha256": sha256(b"").hexdigest()}):
        with pytest.raises(Misconfigured, match="token ops"):
            Access(HttpSettings(tokens=(TokenSettings.model_validate({"name": "ops", **given}),)))


def test_two_callers_do_not_share_one_token() -> None:
    one = known_token("reader")
    other = TokenSettings(name="waker", scopes=frozenset({"wake"}), sha256=one.digest())
    with pytest.raises(Misconfigured, match="reader and waker are the same token"):
        Access(HttpSettings(tokens=(one, other)))


@pytest.mark.parametrize("section", ["{ductile: {%s}}", "{ductiles: {work: {%s}}}"])
def test_a_token_of_the_api_is_not_also_one_that_opens_a_ductile(tmp_path: Path, section: str) -> None:
    file, (of_ductile, own) = tmp_path / "agentic.yaml", ("a-token-of-ductile", "a-token-of-our-own")
    (tmp_path / "token").write_text(of_ductile)
    for gateway in ('token: "${OF_DUCTILE}"', f"token_file: {tmp_path / 'token'}"):
        tokens = '{name: ops, token: "${OURS}"}'
        file.write_text(f"agent: {{http: {{tokens: [{tokens}]}}}}\ngateway: {section % gateway}\n")
        assert load(file, {"OF_DUCTILE": of_ductile, "OURS": own})
        with pytest.raises(Misconfigured, match=r"ops is also gateway\.ductile(s\.work)?\.token") as caught:
            load(file, {"OF_DUCTILE": of_ductile, "OURS": of_ductile})
        assert of_ductile not in str(caught.value)


async def test_without_tokens_everybody_on_the_machine_may_call(tmp_path: Path) -> None:
    async with open_house(tmp_path, tokens=()) as house, house.client(None) as client:
        assert (await client.post("/v1/wake", json={"goal": "x"})).status_code == 202
        assert (await client.get("/v1/runs")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "agent.example.org", ""])  # noqa: S104 # refused
def test_without_tokens_the_api_does_not_listen_to_the_world(host: str) -> None:
    with pytest.raises(Misconfigured, match=r"http\.tokens"):
        Access(HttpSettings(host=host))


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "localhost.evil.com",
        "127.0.0.1.nip.io",
        "evil.com:8700",
        "localhost@evil.com",
        "127.0.0.1:8700@evil.com",
        "foo?",
        "a/healthz?",
        "a#",
        "localhost#.evil.com",
        "localhost.",
        "localhost:",
        "localhost:8700:1",
        "0.0.0.0",  # noqa: S104 # refused
        "",
    ],
)
async def test_a_foreign_host_is_turned_away(house: House, host: str) -> None:
    async with house.client() as client:
        for path in ("/v1/runs", "/docs", "/openapi.json", "/nothing"):
            answer = await client.get(path, headers={"Host": host})
            assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_may_come_by_any_name(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path, headers={"Host": "10.0.0.7:8700"})).status_code == 200


@pytest.mark.attack(82, 83, 125)
@pytest.mark.parametrize("path", ["/v1/events", "/v1/runs", "/v1/whoami", "/metrics"])
@pytest.mark.parametrize(
    "says",
    [
        {"Origin": "https://evil.com"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=lambda says: "-".join(says.values()),
)
async def test_a_page_of_another_site_may_not_even_read_blindly(
    client: httpx2.AsyncClient, path: str, says: dict[str, str]
) -> None:
    answer = await client.get(path, headers=says)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/nothing", "/healthz", "/docs", "/openapi.json"])
async def test_every_answer_is_hardened(house: House, path: str) -> None:
    for token in ("admin", None):
        async with house.client(token) as client:
            headers = (await client.get(path)).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_a_caller_is_told_who_it_is_and_what_it_may_do(house: House) -> None:
    told = {}
    for who in ("reader", "admin"):
        async with house.client(who) as client:
            told[who] = (await client.get("/v1/whoami")).json()
    assert (told["reader"]["caller"], told["reader"]["scopes"]) == ("reader", ["read"])
    assert (told["admin"]["caller"], told["admin"]["scopes"]) == ("admin", ["wake", "read", "control", "operate"])
    assert (told["admin"]["tokens"], told["admin"]["trace_url"]) == (True, "http://traces/{trace_id}")
