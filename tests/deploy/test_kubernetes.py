"""deploy/kubernetes as kubectl renders it is valid and fits the program that it runs."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_service.cli.main import Agentic
from agent_service.settings import AgentSettings
from ductile_gateway.settings import GatewaySettings
from groundwork.service import keys
from tests.deploy.container_settings import agent_inside, gateway_inside

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
    """Every document in a file, by its place; needs no kubectl."""
    for file in OURS:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if "kind" in document and document["kind"] != "Kustomization":
                yield f"{file.relative_to(FOLDER)} {named(document)}", document


def named(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def of_kind(documents: tuple[Document, ...], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def pods(documents: tuple[Document, ...]) -> dict[str, Document]:
    """Pod templates by the name of their owner."""
    return {found["metadata"]["name"]: found["spec"]["template"] for found in of_kind(documents, "Deployment", "Job")}


def containers(template: Document) -> list[Document]:
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def volumes(documents: tuple[Document, ...]) -> list[Document]:
    return [volume for template in pods(documents).values() for volume in template["spec"]["volumes"]]


def environment(template: Document) -> dict[str, str]:
    """Environment of a container with given values; the pod's address is made up."""
    given = {entry["name"]: entry.get("value", "10.1.2.3") for entry in containers(template)[0]["env"]}
    return {name: value.replace("$(POD_IP)", given.get("POD_IP", "")) for name, value in given.items()}


OLDEST, NEWEST = "1.31.0", "1.37.0"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
WRITTEN = dict(written())
CUSTOM = ("ScaledObject",)
"""Kinds outside Kubernetes; tests below check them."""


def validate(document: Document, version: str) -> None:
    """Raises a deviation from the schema; unknown fields are deviations."""
    validating = pytest.importorskip("kubernetes_validate", reason="no schemas: `make test-kubernetes` brings them")
    validating.validate(document, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("place", WRITTEN)
def test_every_document_is_valid_as_it_is_written(place: str, version: str) -> None:
    validate(WRITTEN[place], version)


@needs_kubectl
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("part", RENDERED)
def test_every_document_is_valid_as_it_is_rendered(part: str, version: str) -> None:
    documents = rendered(part)
    assert len(set(map(named, documents))) == len(documents) >= 2
    for document in documents:
        if document["kind"] not in CUSTOM:
            validate(document, version)


@needs_kubectl
@pytest.mark.parametrize("part", RENDERED)
def test_what_is_named_is_there_and_secrets_are_explained_and_not_written_down(part: str) -> None:
    documents = rendered(part)
    templates = [template["metadata"]["labels"].items() for template in pods(documents).values()]
    for service in of_kind(documents, "Service", "PodDisruptionBudget"):
        selector = service["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        assert sum(wanted <= labels for labels in templates) == 1, named(service)
    settings = {found["metadata"]["name"] for found in of_kind(documents, "ConfigMap")}
    assert {volume["configMap"]["name"] for volume in volumes(documents) if "configMap" in volume} == settings
    scaled = {found["spec"]["scaleTargetRef"]["name"] for found in of_kind(documents, *CUSTOM)}
    assert scaled <= set(pods(documents))
    assert all(found["metadata"].get("namespace", "agentic") == "agentic" for found in documents)
    assert not of_kind(documents, "Secret")
    for volume in volumes(documents):
        assert "secret" not in volume or f"`{volume['secret']['secretName']}`" in README


@needs_kubectl
@pytest.mark.parametrize("part", RENDERED)
def test_a_pod_begins_a_command_that_exists_and_may_do_nothing_that_it_does_not_need(part: str) -> None:
    for name, template in pods(rendered(part)).items():
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(template):
            may = container["securityContext"]
            assert may == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
            assert "memory" in container["resources"]["limits"], name
        container = pod["containers"][0]
        before_its_end = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ())
        for program, command, *_ in filter(None, (container["args"], before_its_end)):
            assert (program, command) == ("ductile-gateway", "serve") or (
                program == "agentic" and command in {name.rpartition(" ")[2] for name in Agentic.table}
            )


@needs_kubectl
@pytest.mark.parametrize("part", ["base", "overlays/try", "overlays/production"])
def test_every_pod_may_reach_the_bus_and_is_reached_by_nobody_unnamed(part: str) -> None:
    policies = [policy["spec"] for policy in of_kind(rendered(part), "NetworkPolicy")]
    everybody = [policy for policy in policies if not policy["podSelector"]]
    assert any(not policy.get("ingress") and "Ingress" in policy["policyTypes"] for policy in everybody)
    assert 4222 in [port["port"] for policy in everybody for rule in policy.get("egress", ()) for port in rule["ports"]]
    ports = {port["name"] for pod in pods(rendered(part)).values() for port in pod["spec"]["containers"][0]["ports"]}
    let_in = [rule for policy in policies for rule in policy.get("ingress", ())]
    assert let_in
    assert all(rule["from"] and {port["port"] for port in rule["ports"]} <= ports for rule in let_in)


@needs_kubectl
@pytest.mark.parametrize("part", ["setup", "overlays/try/setup"])
def test_the_streams_of_a_shared_store_are_made_for_replicas(part: str, tmp_path: Path) -> None:
    [container] = containers(pods(rendered(part))["agentic-setup"])
    assert container["args"][:5] == ["agentic", "setup", "--change", "--config", "/etc/agentic/agentic.yaml"]
    options = dict(zip(container["args"][5::2], container["args"][6::2], strict=True))
    assert options["--replicas"] == "3"
    assert float(options["--max-gib"]) >= 1
    documents = rendered(part)
    [settings] = [found["data"]["agentic.yaml"] for found in of_kind(documents, "ConfigMap")]
    environ = environment(pods(documents)["agentic-setup"])
    assert agent_inside(settings, environ, tmp_path).shared
    assert gateway_inside(settings, {}, tmp_path).shared


def test_the_keys_that_are_made_are_read_by_the_services(tmp_path: Path) -> None:
    made = subprocess.run(
        ["sh", FOLDER / "keys.sh"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "KUBECONFIG": "/dev/null"},
    )
    secrets = {found["metadata"]["name"]: found["stringData"] for found in yaml.safe_load_all(made.stdout)}
    for name in ("agent", "gateway"):
        file = tmp_path / f"{name}.keys"
        file.write_text(secrets[f"agentic-{name}-keys"][file.name])
        assert len(keys.read(file)) == 1
    tokens = yaml.safe_load((FOLDER / "base" / "agentic.yaml").read_text())["agent"]["http"]["tokens"]
    assert {token["name"] for token in tokens} == set(secrets["agentic-agent-tokens"])


@needs_kubectl
@pytest.mark.parametrize("part", ["base", "overlays/try", "overlays/production"])
def test_the_services_read_these_settings_from_files_that_the_pods_have(part: str, tmp_path: Path) -> None:
    agent, gateway = loaded(part, tmp_path)
    assert agent.shared
    assert gateway.shared
    for pod, settings in (("agentic-agent", agent), ("agentic-gateway", gateway)):
        template = pods(rendered(part))[pod]
        mounts = [mount["mountPath"] for mount in template["spec"]["containers"][0]["volumeMounts"]]
        kept = [mount for mount in mounts if not mount.startswith("/etc")]
        assert str(settings.cache).startswith(tuple(kept)), "the root file system is read only"
        assert str(settings.keys_file).removeprefix(str(tmp_path)).startswith(tuple(mounts))
        assert template["spec"]["containers"][0]["ports"][0]["containerPort"] == settings.http.port
        assert settings.http.host == "0.0.0.0"  # noqa: S104 - the pod's own address is known to nobody before
    granted = pods(rendered(part))["agentic-gateway"]["spec"]["terminationGracePeriodSeconds"]
    assert part == "overlays/try" or granted > gateway.grace_s > gateway.timeout_s, "for calls that it has begun"


def loaded(part: str, folder: Path) -> tuple[AgentSettings, GatewaySettings]:
    documents = rendered(part)
    [settings] = [found["data"]["agentic.yaml"] for found in of_kind(documents, "ConfigMap")]
    templates = pods(documents)
    agent = agent_inside(settings, environment(templates["agentic-agent"]), folder)
    return agent, gateway_inside(settings, environment(templates["agentic-gateway"]), folder)
