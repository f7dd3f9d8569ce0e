"""`swink completion`: the script that makes a shell complete our commands, options and their values.

click's own scripts do not handle three things: bash ends a word at a colon, fish and zsh treat `--option=value` as one
word, and values may contain commas.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

VARIABLE = "_SWINK_COMPLETE"

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value

    response=$(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1")

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


_FISH = """\
function %(complete_func)s;
    set -lx COMP_WORDS (commandline -cp);
    set -lx COMP_CWORD (commandline -t);
    set -l response (env %(complete_var)s=fish_complete %(prog_name)s);
    set -l head (string match -r -- '^--[^=]+=' (commandline -t));
    set -q head[1]; or set head "";

    for completion in $response;
        set -l metadata (string split -m 1 "," $completion);

        if test $metadata[1] = "dir";
            for path in (__fish_complete_directories $metadata[2]);
                echo $head$path;
            end;
        else if test $metadata[1] = "file";
            for path in (__fish_complete_path $metadata[2]);
                echo $head$path;
            end;
        else if test $metadata[1] = "plain";
            echo $head$metadata[2];
        end;
    end;
end;

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)";
"""


_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a completions described response
    local type key descr
    (( ! $+commands[%(prog_name)s] )) && return 1

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    [[ $PREFIX == --*=* ]] && compset -P '--*='

    for type key descr in ${response}; do
        if [[ "$type" == "plain" ]]; then
            if [[ "$descr" == "_" ]]; then
                completions+=("$key")
            else
                described+=("$key":"$descr")
            fi
        elif [[ "$type" == "dir" ]]; then
            _path_files -/
        elif [[ "$type" == "file" ]]; then
            _path_files -f
        fi
    done

    [ -n "$described" ] && _describe -V unsorted described
    [ -n "$completions" ] && compadd -V unsorted -a completions
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class _Fish(FishComplete):
    source_template = _FISH


class _Zsh(ZshComplete):
    source_template = _ZSH


class _Bash(BashComplete):
    """Completion for bash, from the line as it was typed: bash would split `anthropic:claude` into three words."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def format_completion(self, item: Any) -> str:
        value, breaks = item.value, os.environ.get("COMP_WORDBREAKS", "")
        if item.type == "plain":
            typed = self.get_completion_args()[1]
            if typed.startswith("--"):
                typed = typed.partition("=")[2]
            for mark in "=:":  # bash has already completed the text before these
                if mark in breaks:
                    before, typed = typed[: typed.rfind(mark) + 1], typed[typed.rfind(mark) + 1 :]
                    value = value.removeprefix(before)
        return f"{item.type},{value}"


def speak_to_shells() -> None:
    """Makes click use the scripts and formats of this module."""
    add_completion_class(_Bash)
    add_completion_class(_Fish)
    add_completion_class(_Zsh)


@click.command(
    epilog="""\b
Examples:
  swink completion bash >> ~/.bashrc
  swink completion zsh > "${fpath[1]}/_swink"
  swink completion fish > ~/.config/fish/completions/swink.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    speak_to_shells()
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(script(ctx.find_root().command, {}, "swink", VARIABLE).source())
