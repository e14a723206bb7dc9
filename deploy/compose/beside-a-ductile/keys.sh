#!/bin/sh
# The secrets of the parts: prints it for .env, all but DUCTILE_TOKEN, which Ductile has.
set -eu
for name in NATS_TOKEN AGENTIC_TOKEN DASHBOARDS_TOKEN GRAFANA_PASSWORD; do
  printf '%s=t%s\n' "$name" "$(openssl rand -hex 24)"
done
