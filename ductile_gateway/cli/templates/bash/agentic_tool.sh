# Reads the call, and writes the answer (Ductile plugin protocol v2). Copy this file beside the program of your tool:
#
#   . "${0%/*}/agentic_tool.sh"
#   text=$(argument text)                 # one of the call's arguments
#   ok "this is the result" words:=3      # for people and the model; NAME=TEXT and NAME:=JSON are for programs
#   fail "the text has no words"          # the same call will not succeed later
#
# JSON is read and written by python3, which the gateway brings along.
agentic_call=$(cat)

argument() {
  python3 -c '
import json, sys
call = json.load(sys.stdin)
given = (call.get("event") or call)["payload"].get(sys.argv[1], "")
print(given if isinstance(given, str) else json.dumps(given))' "$1" <<<"$agentic_call"
}
ok() {
  python3 -c '
import json, sys
given = [one.partition("=") for one in sys.argv[2:]]
output = {name.removesuffix(":"): json.loads(value) if name.endswith(":") else value for name, _, value in given}
json.dump({"status": "ok", "result": sys.argv[1], "output": output}, sys.stdout)' "$@"
}
fail() {
  python3 -c '
import json, sys
json.dump({"status": "error", "error": sys.argv[1], "error_class": "invalid_arguments", "retry": False}, sys.stdout)' "$1"
  exit 0
}
