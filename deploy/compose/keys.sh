#!/bin/sh
# The secrets of the cluster: prints it for deploy/compose/.env.
set -eu
key() { printf 'k%s %s %s' "$(openssl rand -hex 4)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(openssl rand -hex 32)"; }
printf 'NATS_TOKEN=t%s\n' "$(openssl rand -hex 24)"
printf 'AGENTIC_TOKEN=%s\n' "$(openssl rand -hex 24)"
printf 'KEYS_OF_AGENTS="%s"\n' "$(key)"
printf 'KEYS_OF_GATEWAYS="%s"\n' "$(key)"
