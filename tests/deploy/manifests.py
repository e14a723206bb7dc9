"""What deploy/kubernetes says, as Kubernetes would be told it: rendered by kubectl, which has kustomize in it."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path("deploy/kubernetes")
KUBECTL = shutil.which("kubectl")
RENDERED = ("base", "setup", "overlays/try", "overlays/try/setup", "overlays/production")
OURS = [*(FOLDER / "base").glob("*.yaml"), *(FOLDER / "setup").glob("*.yaml"), FOLDER / "nats" / "network.yaml"]

Document = Mapping[str, Any]

needs_kubectl = pytest.mark.skipif(
    not KUBECTL, reason="no kubectl: kubernetes.io has it, and Debian as kubernetes-client"
)


@cache
def rendered(part: str) -> tuple[Document, ...]:
    done = subprocess.run([str(KUBECTL), "kustomize", FOLDER / part], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def written() -> Iterator[tuple[str, Document]]:
    """Each whole document as it stands in a file, by its place: what is there without kubectl, too."""
    for file in OURS:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if "kind" in document and document["kind"] != "Kustomization":
                yield f"{file.relative_to(FOLDER)} {named(document)}", document


def named(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def of_kind(documents: tuple[Document, ...], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def pods(documents: tuple[Document, ...]) -> dict[str, Document]:
    """The templates of pods, by the name of what makes them."""
    return {found["metadata"]["name"]: found["spec"]["template"] for found in of_kind(documents, "Deployment", "Job")}


def containers(template: Document) -> list[Document]:
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def volumes(documents: tuple[Document, ...]) -> list[Document]:
    return [volume for template in pods(documents).values() for volume in template["spec"]["volumes"]]


def environment(template: Document) -> dict[str, str]:
    """What a container sees that was given values; a pod's address is made up."""
    given = {entry["name"]: entry.get("value", "10.1.2.3") for entry in containers(template)[0]["env"]}
    return {name: value.replace("$(POD_IP)", given.get("POD_IP", "")) for name, value in given.items()}
