#!/usr/bin/env bash
# {{name}}: one JSON object comes in on standard input, one goes out on standard output (Ductile plugin protocol v2).
# What is written to standard error is told where the call fails.
set -euo pipefail
request=$(cat)

# JSON is read and written by python3, which the gateway brings along; jq does as well, where it is installed.
argument() { # NAME: `handle` is given its arguments within an event, other commands beside their name
  python3 -c '
import json, sys
request = json.load(sys.stdin)
print((request.get("event") or request)["payload"].get(sys.argv[1], ""))' "$1" <<<"$request"
}
answer() { # RESULT [NAME=TEXT | NAME:=JSON …]: the result is for people and the model, the values for programs
  python3 -c '
import json, sys
given = [one.partition("=") for one in sys.argv[2:]]
output = {name.removesuffix(":"): json.loads(value) if name.endswith(":") else value for name, _, value in given}
json.dump({"status": "ok", "result": sys.argv[1], "output": output}, sys.stdout)' "$@"
}
refuse() { # REASON: the same call will not succeed later
  python3 -c '
import json, sys
json.dump({"status": "error", "error": sys.argv[1], "error_class": "invalid_arguments", "retry": False}, sys.stdout)' "$1"
  exit 0
}

read -r -d '' -a words < <(argument text) || true
((${#words[@]})) || refuse "the text has no words"
longest=${words[0]}
for word in "${words[@]}"; do
  if ((${#word} > ${#longest})); then longest=$word; fi
done
counted="${#words[@]} words"
((${#words[@]} > 1)) || counted="1 word"
answer "$counted, the longest is $longest" "words:=${#words[@]}" "longest=$longest"
