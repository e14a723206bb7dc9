"""The settings in deploy/kubernetes are read by both services, and fit what they run in."""

from pathlib import Path

import pytest

from agent_service.settings import AgentSettings
from ductile_gateway.settings import GatewaySettings
from tests.deploy.inside import agent_inside, gateway_inside
from tests.deploy.manifests import environment, needs_kubectl, of_kind, pods, rendered


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


@needs_kubectl
@pytest.mark.parametrize("part", ["base", "overlays/try", "overlays/production"])
def test_a_pod_that_ends_has_time_for_the_calls_that_it_has_begun(part: str, tmp_path: Path) -> None:
    _, gateway = loaded(part, tmp_path)
    granted = pods(rendered(part))["agentic-gateway"]["spec"]["terminationGracePeriodSeconds"]
    if part != "overlays/try":
        assert granted > gateway.grace_s > gateway.timeout_s


@needs_kubectl
@pytest.mark.parametrize("part", ["setup", "overlays/try/setup"])
def test_the_streams_of_a_shared_store_are_made(part: str, tmp_path: Path) -> None:
    documents = rendered(part)
    [settings] = [found["data"]["agentic.yaml"] for found in of_kind(documents, "ConfigMap")]
    environ = environment(pods(documents)["agentic-setup"])
    assert agent_inside(settings, environ, tmp_path).shared
    assert gateway_inside(settings, {}, tmp_path).shared


def loaded(part: str, folder: Path) -> tuple[AgentSettings, GatewaySettings]:
    """The settings of both services, as their pods read them."""
    documents = rendered(part)
    [settings] = [found["data"]["agentic.yaml"] for found in of_kind(documents, "ConfigMap")]
    templates = pods(documents)
    agent = agent_inside(settings, environment(templates["agentic-agent"]), folder)
    return agent, gateway_inside(settings, environment(templates["agentic-gateway"]), folder)
