#!/usr/bin/env bash
# {{name}}: what is written to standard error is told where the call fails.
set -euo pipefail
. "${0%/*}/agentic_tool.sh"

read -r -d '' -a words < <(argument text) || true
((${#words[@]})) || fail "the text has no words"
longest=${words[0]}
for word in "${words[@]}"; do ((${#word} <= ${#longest})) || longest=$word; done
counted="${#words[@]} words"
((${#words[@]} > 1)) || counted="1 word"
ok "$counted, the longest is $longest" "words:=${#words[@]}" "longest=$longest"
