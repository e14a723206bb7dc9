#!/usr/bin/env bash
# An executor of its own in bash: offers the tool `count` beside the gateway's. Needs the nats CLI and jq; NATS_URL says
# where, NATS_NKEY, NATS_CA and NATS_INBOX_PREFIX how it gets in where the server asks for a key, LOG a file for what it
# says. Its requests are pushed to it by a consumer that `agentic setup --executor count-executor=count` makes, and wait
# on the bus while it is away. They come in an environment variable: one of more than 128 KiB is lost, and asked for again
# when its time is up.
set -euo pipefail
name=count-executor route=count result=agentic.tool_result

nats() { command nats ${NATS_INBOX_PREFIX:+--inbox-prefix "$NATS_INBOX_PREFIX"} "$@"; }

catalog() { # the tools on offer
  jq -nc --arg executor $name --arg route $route '{$executor, tools: [{name: "count", $route, timeout_s: 20,
    echoes_capability: true, commands: [{name: "handle", tier: "read", description: "How many lines, words and bytes a text has.", input_schema:
      {type: "object", properties: {text: {type: "string"}}, required: ["text"]}}]}]}'
}

publish() { # under the key $1; where somebody else's message has it, under the next id
  local id=$1 body=$2 number=1 ack stored
  while true; do
    ack=$(nats req $result --raw --no-templates --force-stdin --header "Nats-Msg-Id:$id" <<<"$body")
    jq -e .stream <<<"$ack" || return 1
    jq -e .duplicate <<<"$ack" || return 0
    # A login that may not look says it again: said twice it counts once.
    stored=$(nats req "\$JS.API.STREAM.MSG.GET.$(jq -r .stream <<<"$ack")" --raw "$(jq -c '{seq}' <<<"$ack")" || true)
    [ "$(jq -r '.message | .subject, (.data | @base64d)' <<<"$stored")" != "$result"$'\n'"$body" ] || return 0
    id=$1#$((++number))
  done
}

handle() { # one request, in NATS_REQUEST_BODY
  local counted body
  # else it is asked of another, or not waited for any more
  if jq -e --arg name $name '.payload | (.executor // $name) == $name and (.deadline_at // "9") > (now | todate)' \
    <<<"$NATS_REQUEST_BODY"; then
    counted=$(jq -j '.payload.tool_payload.text' <<<"$NATS_REQUEST_BODY" | wc)
    body=$(jq -c --arg counted "$counted" --arg result $result '.payload as $asked
      | ($counted | [scan("[0-9]+") | tonumber]) as [$lines, $words, $bytes]
      | {type: $result, dedupe_key: (.dedupe_key | sub(":request(?=(:attempt:\\d+)?$)"; ":result")), payload: {
          run_id: $asked.run_id, step: $asked.step, tool: $asked.tool, attempt: $asked.attempt, task: $asked.task,
          round: $asked.round, capability: $asked.capability, status: "ok",
          result: {summary: "\($lines) lines, \($words) words, \($bytes) bytes", $lines, $words, $bytes},
          completed_at: (now | todate)}}' <<<"$NATS_REQUEST_BODY")
    publish "$(jq -r .dedupe_key <<<"$body")" "$body"
  fi
}

serve() {
  nats reply $name.requests --queue $name --command "$0 handle" &
  nats reply ductile-gateway.catalog --queue $name --command "$0 catalog" &
  trap 'kill $(jobs -p)' EXIT
  wait -n
}

case ${1:-serve} in
handle) # what is printed is the acknowledgement
  set +e
  (set -e && handle) >>"${LOG:-/dev/null}" 2>&1
  [ $? -eq 0 ] && echo -n +ACK || echo -n '-NAK {"delay": 5000000000}' ;;
catalog) catalog ;;
serve) serve ;;
esac
