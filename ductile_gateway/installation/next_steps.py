"""What is left to do by hand after something was added to a Ductile, or taken out: as commands that can be typed."""

import shlex
from collections.abc import Iterator

from ductile_gateway.installation.found import OUR_PLUGINS
from ductile_gateway.installation.installing import Proposal
from ductile_gateway.installation.plan import RELAY, WEBHOOK, Plan
from ductile_gateway.installation.program import DuctileProgram

_IN_VAULT = {
    "gateway": ("agentic-gateway-token", "core"),
    "relay": (RELAY, "core"),
    "webhook": (WEBHOOK, "core"),
    "wake": ("agentic-wake-token", "agentic-wake"),
    "run": ("agentic-run-token", "agentic-run"),
}
"""What Ductile's vault calls each secret, and whose it is there (generation n)."""


def restart(proposal: Proposal, ductile: DuctileProgram | None) -> str:
    """How a Ductile learns of it."""
    if ductile:
        return "Start Ductile anew (a reload is not enough) for it to know."
    main = shlex.quote(str(proposal.found.main))
    return (
        "There is no program `ductile` on the PATH. Where it is:\n"
        f"  ductile config lock --config {main} && ductile config check --config {main}\n"
        "and then start Ductile anew for it to know."
    )


def next_steps(proposal: Proposal, ductile: DuctileProgram | None) -> str:
    """After an installation."""
    plan = proposal.plan
    assert plan, "an installation has a plan"  # noqa: S101
    vault = [_of_vault(plan, proposal.found.vault)] if plan.generation == "n" else []
    return "\n\n".join(["Added.", *vault, restart(proposal, ductile), _of_agent(plan), *_of_trust(proposal)])


def _of_trust(proposal: Proposal) -> Iterator[str]:
    """Of plugins there that say of no command whose words its results are (`x-output`, which a Ductile hands on)."""
    silent = [
        name
        for name, manifest in sorted(proposal.found.manifests().items())
        if name not in OUR_PLUGINS and not any("x-output" in command.output_schema for command in manifest.commands)
    ]
    if silent:
        yield (
            f"Results of {', '.join(silent)} count as written by strangers, because nobody says what they are: writes "
            "after them wait for a person.\nThose that are the house's own, such as sensors, name in the agent's "
            f"settings:\n\n  agent:\n    trusted: [{', '.join(silent)}]"
        )


def _of_vault(plan: Plan, vault: str) -> str:
    at = f"--api-url {shlex.quote(vault)}"
    commands = []
    for name, (secret, principal) in _IN_VAULT.items():
        if name not in plan.secrets:
            continue
        if principal != "core":
            commands.append(f"  ductile vault register-principal --name {principal} --kind plugin {at}")
        value = shlex.quote(str(plan.secrets[name]))
        commands.append(
            f"  tr -d '\\n' < {value} | ductile vault set --name {secret} --pattern manual --principal {principal} {at}"
        )
    locked = "  ductile plugin lock --all   # prints a code; the same command with the code records the plugins"
    return "\n".join(
        [
            "First its vault needs the secrets; the running Ductile takes them, with DUCTILE_VAULT_TOKEN set:",
            *commands,
            locked,
        ]
    )


def _of_agent(plan: Plan) -> str:
    people = shlex.quote(str(plan.secrets["people"]))
    lines = [
        "For the agent (NATS has to be there; each service in a terminal of its own):",
        "  agentic setup && ductile-gateway check",
        "  ductile-gateway serve",
        "  agentic serve",
        f"  export AGENTIC_TOKEN=$(cat {people}); agentic doctor",
    ]
    if plan.settings_shown is None:
        return "\n".join(lines)
    shown = f"Your settings are left as they are. What has to be in them:\n\n{plan.settings_shown}"
    return "\n".join([shown, *lines])
