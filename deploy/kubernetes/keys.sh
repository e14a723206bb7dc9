#!/bin/sh
# The Secrets of this installation: the keys of agents and gateways, and three tokens of the HTTP API. Prints them for
# `kubectl apply --namespace agentic -f -`; applied a second time they would take the place of the first, and everything that
# is stored would count as changed by other hands. So it ends where they are there already.
set -eu
if kubectl --namespace agentic get secret agentic-agent-keys >/dev/null 2>&1; then
  echo "the keys are there already: delete the Secrets agentic-agent-keys and agentic-gateway-keys to begin anew" >&2
  exit 1
fi
key() { printf 'k%s %s %s' "$(openssl rand -hex 4)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(openssl rand -hex 32)"; }
secret() { printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData:\n' "$1"; }
secret agentic-agent-keys
printf '  agent.keys: "%s"\n---\n' "$(key)"
secret agentic-gateway-keys
printf '  gateway.keys: "%s"\n---\n' "$(key)"
secret agentic-agent-tokens
for name in operators wakers dashboards; do printf '  %s: "%s"\n' "$name" "$(openssl rand -hex 24)"; done
