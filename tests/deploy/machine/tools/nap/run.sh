#!/bin/bash
request=$(cat)
wanted() { grep -oE "\"$1\": ?\"?[^\",}]+" <<<"$request" | head -1 | sed -E 's/.*: ?"?//'; }
echo "$AGENTIC_CALL begins" >> "$(wanted diary)"
sleep "$(wanted seconds)"
echo "$AGENTIC_CALL ends" >> "$(wanted diary)"
echo '{"status": "ok", "result": "slept well"}'
