"""What shells complete, in the shells themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import clean
from tests.cli.dev_stack import Dev

HERE = Path(sys.executable).parent
COMPLETED = {
    "bash": """eval "$({program} completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_{function}_completion {program}; printf '%s\\n' "${{COMPREPLY[@]}}" """,
    "zsh": """autoload -Uz compinit; compinit -u -D; eval "$({program} completion zsh)"
test "$_comps[{program}]" = _{function}_completion
_arguments() {{ print -l -- "$@" }}; _files() {{ }}; words=({words}); CURRENT=$#words; _{function}_completion""",
    "fish": '{program} completion fish | source; complete -C "{words}"',
}


def completed(shell: str, words: str, **environment: str) -> str:
    program = words.split()[0]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: install it as any package")
    script = COMPLETED[shell].format(program=program, words=words, function=program.replace("-", "_"))
    env = clean(environment) | {"PATH": f"{HERE}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", COMPLETED)
@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("agentic ver", "verify"),
        ("agentic runs --sta", "--status"),
        ("agentic runs --status esc", "escalated"),
        ("ductile-gateway mig", "migrate"),
        ("ductile-gateway migrate --to jet", "jetstream"),
    ],
)
def test_a_shell_completes_commands_options_and_values(shell: str, words: str, whole: str) -> None:
    assert whole in completed(shell, words)


@pytest.mark.parametrize("shell", COMPLETED)
def test_a_shell_completes_the_ids_of_runs(shell: str, dev: Dev, done: dict[str, Any]) -> None:
    assert done["run_id"] in completed(shell, "agentic show run_", AGENTIC_URL=dev.url)


@pytest.mark.parametrize("shell", COMPLETED)
def test_without_an_agent_a_shell_completes_no_run_and_says_nothing(shell: str) -> None:
    assert "run_" not in completed(shell, "agentic show run_", AGENTIC_URL="http://127.0.0.1:9")
