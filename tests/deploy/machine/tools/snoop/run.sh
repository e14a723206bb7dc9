#!/bin/bash
# Says which files it can read, which places it can write to, and which of the services it can see or signal.
cat > /dev/null
found=""
for file in /etc/agentic/agent.nk /etc/agentic/gateway.nk /etc/agentic/agentic.yaml /etc/agentic/operators.token \
  /var/lib/agentic/agent/store.keys /var/lib/agentic/gateway/store.keys /var/lib/agentic/gateway/store/ledger.db \
  /etc/agentic-nats/logins/agent.nk /etc/shadow; do
  (: < "$file") 2> /dev/null && found="$found read:$file"
done
for place in /etc /opt/agentic /var/lib/agentic /var/lib/agentic/gateway /usr/local/bin /home /root /srv/tools; do
  (: > "$place/snoop-was-here") 2> /dev/null && found="$found wrote:$place"
done
for place in "$TMPDIR" .; do
  (: > "$place/snoop-was-here") 2> /dev/null || found="$found kept-from:$place"
done
for each in /proc/[0-9]*; do
  (tr '\0' '\n' < "$each/environ") 2> /dev/null | grep -q GATEWAY_ && found="$found environment:$each"
done
unshare --user --map-root-user true 2> /dev/null && found="$found became-root"
echo "{\"status\": \"ok\", \"result\": \"open doors:$found\"}"
