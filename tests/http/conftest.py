"""Fixtures for tests of the API."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.http.house import House, bearer, open_house, serving


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


@pytest.fixture
async def client(house: House) -> AsyncIterator[httpx2.AsyncClient]:
    """In-process client with all scopes."""
    async with house.client() as client:
        yield client


@pytest.fixture
async def port(house: House) -> AsyncIterator[int]:
    async with serving(house.app) as port:
        yield port


@pytest.fixture
async def over_http(port: int) -> AsyncIterator[httpx2.AsyncClient]:
    """Client over a real socket with all scopes."""
    url = f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(base_url=url, headers=bearer("admin"), trust_env=False) as client:
        yield client
