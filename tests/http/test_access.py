"""Access: every operation with every token, token shape and origin."""

from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from agent_service.app import serve
from agent_service.settings import AgentSettings, ApiSettings, TokenSettings, load
from groundwork.service.errors import Misconfigured
from schemas.operations import OPERATIONS
from tests.http import wire
from tests.http.house import TOKENS, House, known_token, open_house, secret
from tests.kit.runs import whole_run

RULES = {(one.method, one.path): one.scope for one in OPERATIONS if one.path}
BODIES = {
    "/v1/wake": {"goal": "x"},
    "/v1/runs/{run_id}/signals": {"kind": "resume"},
    "/v1/runs/{run_id}/approvals": {"decision": "reject"},
    "/v1/runs/{run_id}/answers": {"answer": "x"},
    "/v1/stop-all": {"reason": "x"},
    "/v1/drain": {"within_s": 1},
}


async def status(client: httpx2.AsyncClient, token: str) -> int:
    return (await client.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})).status_code


async def test_the_longest_token_that_is_configured_can_be_sent(tmp_path: Path) -> None:
    ann = TokenSettings(name="ann", token=SecretStr("a" * 505))
    async with open_house(tmp_path, tokens=(ann,)) as house, house.client(None) as client:
        tried = [await status(client, token) for token in ("a" * 505, "a" * 504, "a" * 506)]
    assert tried == [200, 401, 401]


def test_every_route_has_a_rule(house: House) -> None:
    assert {(method, path.replace(":path", "")) for method, path in house.table()} == RULES.keys()


async def call(client: httpx2.AsyncClient, method: str, path: str, run_id: str) -> httpx2.Response:
    filled = {"run_id": run_id, "path": "plan.md", "step": "1", "call": "1", "seq": "1"}
    headers = {"Last-Event-ID": "none"} if path == "/v1/events" else {}  # refused, or it would never end
    body = BODIES.get(path, {}) if method == "POST" else None
    return await client.request(method, path.format(**filled), json=body, headers=headers)


@pytest.mark.parametrize("token", [*TOKENS, "stranger", None])
async def test_only_a_token_with_the_scope_of_a_route_may_call_it(house: House, token: str | None) -> None:
    run_id, known = await house.play(whole_run()), token in TOKENS
    flaws: list[tuple[object, ...]] = []
    for (method, path), scope in RULES.items():
        async with house.client(token) as client:
            answer = await call(client, method, path, run_id)
        if scope is None or scope in TOKENS.get(token or "", ()):
            flaws += [(method, path, answer.status_code)] if answer.status_code in (401, 403) else []
            continue
        told = answer.status_code, answer.json()["error"]["code"], "www-authenticate" in answer.headers
        wanted = (403, "forbidden", False) if known else (401, "unauthorized", True)
        flaws += [(method, path, *told)] if told != wanted or secret("stranger") in answer.text else []
    assert flaws == []


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


async def test_a_token_comes_in_one_way_only(port: int) -> None:
    tried = {header: (await wire.get(port, "/v1/runs", f"Host: 127.0.0.1\r\n{header}\r\n")) for header in WRONG_HEADERS}
    assert [header for header, answer in tried.items() if answer.status != 401] == []
    assert (await wire.get(port, "/v1/runs")).status == 200


async def test_who_may_not_call_is_not_told_which_runs_there_are(house: House) -> None:
    run_id = await house.play(whole_run())
    async with house.client("waker") as client:
        answers = [await client.get(f"/v1/runs/{run}") for run in (run_id, "run_unknown")]
    told = [{part: said for part, said in answer.json().items() if part != "instance"} for answer in answers]
    assert ({answer.status_code for answer in answers}, told[0]) == ({403}, told[1])


async def test_a_token_can_be_configured_by_its_hash(tmp_path: Path) -> None:
    hashed = TokenSettings(name="hashed", scopes=TOKENS["reader"], sha256=known_token("reader").digest())
    async with open_house(tmp_path, tokens=(hashed,)) as house, house.client(None) as client:
        assert [await status(client, secret(who)) for who in ("reader", "admin")] == [200, 401]


UNSAFE: list[tuple[str, ApiSettings]] = [
    *(
        ("token ops", ApiSettings(tokens=(TokenSettings.model_validate({"name": "ops", **given}),)))
        for token in ("", " ", "x", " " * 40, "fifteen letters")
        for given in ({"token": SecretStr(token)}, {"sha256": sha256(b"").hexdigest()})
    ),
    *(
        ("token ops fits in no request", ApiSettings(tokens=(TokenSettings(name="ops", token=SecretStr(token)),)))
        for token in ("x" * 506, "größer-als-sechzehn", "two-lines\nof-a-token", "ends-with-a-space ")
    ),
    (
        "reader and waker are the same token",
        ApiSettings(
            tokens=(
                known_token("reader"),
                TokenSettings(name="waker", scopes=frozenset({"wake"}), sha256=known_token("reader").digest()),
            )
        ),
    ),
    *(
        (r"agent\.http\.tokens", ApiSettings(host=host))
        for host in ("0.0.0.0", "::", "192.0.2.1", "agent.example.org", "")  # noqa: S104 # refused
    ),
]


def test_an_api_with_tokens_that_are_guessed_or_shared_or_none_before_the_world_does_not_open() -> None:
    for why, settings in UNSAFE:
        with pytest.raises(Misconfigured, match=why):
            settings.bearers()


async def test_an_agent_refuses_its_settings_before_it_takes_the_bus(tmp_path: Path) -> None:
    bus = {"nats": {"urls": ["nats://127.0.0.1:1"]}, "store": tmp_path}
    for unusable in ({"http": {"host": "::"}}, {"model": {"provider": "openai"}}):
        with pytest.raises(Misconfigured):
            await serve(AgentSettings.model_validate(bus | unusable))


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


async def test_who_may_only_wake_is_not_shown_the_run_by_waiting_for_it(house: House) -> None:
    told = {}
    for who in ("waker", "admin"):
        async with house.client(who) as client:
            told[who] = (await client.post("/v1/wake", json={"goal": "x"}, params={"wait": 0.01})).status_code
    assert told == {"waker": 403, "admin": 202}


FOREIGN_HOSTS = (
    "evil.com", "localhost.evil.com", "127.0.0.1.nip.io", "evil.com:8700", "localhost@evil.com",
    "127.0.0.1:8700@evil.com", "foo?", "a/healthz?", "a#", "localhost#.evil.com", "localhost.", "localhost:",
    "localhost:8700:1", "0.0.0.0", "",  # noqa: S104 # refused
)  # fmt: skip


async def test_a_foreign_host_is_turned_away_except_by_probes(client: httpx2.AsyncClient) -> None:
    for host in FOREIGN_HOSTS:
        for path in ("/v1/runs", "/docs", "/openapi.json", "/nothing"):
            answer = await client.get(path, headers={"Host": host})
            assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host"), (host, path)
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path, headers={"Host": "10.0.0.7:8700"})).status_code == 200


OTHER_SITES = (
    {"Origin": "https://evil.com"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Site": "same-site"},
)


async def test_a_page_of_another_site_may_not_even_read_blindly(client: httpx2.AsyncClient) -> None:
    for path in ("/v1/events", "/v1/runs", "/v1/whoami", "/metrics"):
        for says in OTHER_SITES:
            answer = await client.get(path, headers=says)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin"), (path, says)


async def test_every_answer_is_hardened(house: House) -> None:
    for path in ("/v1/runs", "/v1/nothing", "/healthz", "/docs", "/openapi.json"):
        for token in ("admin", None):
            async with house.client(token) as client:
                headers = (await client.get(path)).headers
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(
                headers["content-security-policy"].split("; ")
            ), path


async def test_requests_are_counted_by_what_is_there_and_not_by_what_is_asked(
    client: httpx2.AsyncClient, house: House
) -> None:
    """Probes and streams are not counted, and a route with its parameters is one series."""
    run = await house.play(whole_run())
    for method, path in (
        *(("GET", f"/v1/runs/{run}"), ("GET", "/v1/runs/run_none"), ("GET", "/healthz")),
        *(("GET", f"/v1/runs/{run}/events"), ("GUESS", "/v1/runs"), ("GET", "/nothing")),
    ):
        await client.request(method, path)
    name = "http_server_request_duration_seconds_count{http_request_method="
    lines = (await client.get("/metrics")).text.splitlines()
    assert [line.removeprefix(name) for line in lines if line.startswith(name)] == [
        '"GET",http_response_status_code="200",http_route="/v1/runs/{run_id}"} 1.0',
        '"GET",http_response_status_code="404",http_route="/v1/runs/{run_id}"} 1.0',
        '"other",http_response_status_code="405",http_route="/v1/runs"} 1.0',
        '"GET",http_response_status_code="404",http_route=""} 1.0',
    ]
