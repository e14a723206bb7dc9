"""What the dashboard and the alerts ask of Prometheus."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

FOLDER = Path("deploy/observability")
DASHBOARD = FOLDER / "grafana" / "agentic.json"
RULES = FOLDER / "rules.yml"
VARIABLES = {
    "$__rate_interval": "10s",
    "$__range": "1m",
    "$agent": "agentic-loop",
    "$gateway": "ductile-gateway",
}
"""As Grafana would replace them, for a Prometheus that reads every second."""
_NAME = re.compile(r"\b(?:agentic|gen_ai|http|messaging|process)_[a-z0-9_]+(?=[{\[)\s,]|$)")
_BY = re.compile(r"\b(?:by|on|without|group_left|group_right)\s*\([^)]*\)")
_MATCHERS = re.compile(r"\{[^}]*\}")
_OF_A_HISTOGRAM = ("_bucket", "_count", "_sum")


def panels() -> dict[str, list[str]]:
    """Of each panel of the dashboard, by its title, the queries as Prometheus gets them."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return {panel["title"]: [_plain(t["expr"]) for t in panel["targets"]] for panel in found if panel["type"] != "row"}


def annotations() -> list[str]:
    return [_plain(one["expr"]) for one in json.loads(DASHBOARD.read_text())["annotations"]["list"]]


def alerts() -> dict[str, dict[str, dict[str, str]]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def metrics_in(query: str) -> set[str]:
    """The metrics that a query reads, as they are exported: a histogram by its own name."""
    return set(_bare(_NAME.findall(_MATCHERS.sub("", _BY.sub("", query)))))


def labels_in(query: str) -> set[str]:
    """The labels that a query tells apart, but for those that Prometheus itself gives."""
    told = [*_BY.findall(query), *_MATCHERS.findall(query)]
    names = {name for text in told for name in re.findall(r"([a-z_]+)\s*(?:[=!]~?|[,)])", text)}
    return names - {"job", "instance", "le"}


def exported(text: str) -> dict[str, set[str]]:
    """The metrics in a text of /metrics, each with the labels of its series."""
    found: dict[str, set[str]] = {line.split()[2]: set() for line in text.splitlines() if line.startswith("# TYPE ")}
    for line in text.splitlines():
        name, _, labels = line.partition("{")
        for bare in _bare([name]) if not line.startswith("#") else ():
            found.setdefault(bare, set()).update(re.findall(r'([a-z_]+)="', labels))
    return found


def _bare(names: list[str]) -> Iterator[str]:
    for name in names:
        ending = next((ending for ending in _OF_A_HISTOGRAM if name.endswith(ending)), "")
        yield name.removesuffix(ending)


def _plain(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query
