"""Stores of issues: a folder for trials, or GitHub."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

API = "https://api.github.com"


class Folder:
    """Reads `issues.jsonl`; appends labels and replies to files beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[dict[str, Any]]:
        lines = (self._folder / "issues.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def label(self, number: str, label: str) -> None:
        self._add("labels.jsonl", {"number": int(number), "label": label})

    def reply(self, number: str, text: str) -> None:
        self._add("replies.jsonl", {"number": int(number), "text": text})

    def _add(self, name: str, told: dict[str, Any]) -> None:
        with (self._folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


class Github:
    """The newest hundred issues of a repository over its REST API. Raises OSError."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._url = f"{config.get('api', API)}/repos/{config['repository']}/issues"
        self._token = config["token"]

    def all(self) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"state": "all", "per_page": 100})
        found: list[dict[str, Any]] = self._ask(f"?{query}")
        return found

    def label(self, number: str, label: str) -> None:
        self._ask(f"/{number}/labels", {"labels": [label]})

    def reply(self, number: str, text: str) -> None:
        self._ask(f"/{number}/comments", {"body": text})

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/vnd.github+json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, content, headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
