"""Completion of a command's words in a shell, by a script that asks the program itself for them."""

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

Shell = StrEnum("Shell", ["BASH", "ZSH", "FISH"])


def completion_of(program: str) -> Callable[[Shell], None]:
    def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.", metavar="bash|zsh|fish")]) -> None:
        """Print what makes a shell complete the commands, options and values."""
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        found = get_completion_script(prog_name=program, complete_var=variable, shell=shell.value)
        sys.stdout.write(f"{found}\n")

    return completion


def told_to_a_shell(program: str) -> tuple[str, ...]:
    return (
        f'eval "$({program} completion bash)"   # in ~/.bashrc; zsh likewise, after compinit',
        f"{program} completion fish > ~/.config/fish/completions/{program}.fish",
    )
