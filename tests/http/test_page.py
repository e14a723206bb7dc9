"""The page's files: open to everybody, under a policy that lets nothing in."""

import pytest

from agent_service.api.page import FOLDER, TYPES
from tests.http.house import House

FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in TYPES)
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    "trusted-types 'none'",
}  # fmt: skip


async def test_every_file_is_open_and_brings_the_policy(house: House) -> None:
    async with house.client(None) as client:
        for path in ("/", *(f"/page/{name}" for name in FILES)):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert set(answer.headers["content-security-policy"].split("; ")) == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/none.js", "/page/../page.py", "/page/..%2fpage.py", "/page/%2e%2e/page.py", "/page//app.js"],
)
async def test_only_its_own_files_can_be_had(house: House, path: str) -> None:
    async with house.client(None) as client:
        assert (await client.get(path)).status_code == 404


def test_its_modules_make_no_markup_of_strings_and_name_no_other_place() -> None:
    for name in FILES:
        content = (FOLDER / name).read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in content, f"{name} has {word}"
        assert not [word for word in content.split() if word.startswith(("from'http", 'src="http', 'href="http'))]
