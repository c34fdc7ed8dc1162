"""The command `torcheer completion`: a script for bash, zsh or fish, made of the commands' own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from torcheer.terminal import add_json, tell
from torcheer.terminal.command_parser import CommandParser

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "torcheer completion bash > ~/.local/share/bash-completion/completions/torcheer",
    "zsh": "torcheer completion zsh > ~/.zfunc/_torcheer    (with ~/.zfunc in fpath, before compinit)",
    "fish": "torcheer completion fish > ~/.config/fish/completions/torcheer.fish",
}


def main(command: str, arguments: Sequence[str]) -> int:
    """Print the script of a shell."""
    shell = make_parser(command).parse_args(arguments).shell
    script = {"bash": bash, "zsh": zsh, "fish": fish}[shell](options_of_commands())
    tell(shell=shell, script=script)
    print(script, end="")
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Print a completion script for commands, options and files.",
        epilog="\n".join(INSTALL.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS)
    add_json(parser)
    return parser


Words = dict[str, tuple[str, list[str], list[str]]]  # command -> (help, options, words that it takes)


def options_of_commands() -> Words:
    """Return the options and the words of each command."""
    from torcheer.cli import COMMANDS
    from torcheer.cli import make_parser as parser_of

    found: Words = {}
    for command, (_, summary) in COMMANDS.items():
        parser = parser_of(command)
        options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        words = [str(word) for action in parser._actions if not action.option_strings for word in action.choices or ()]
        found[command] = summary, sorted(options), words
    found["new"][2].extend(_kinds())
    return found


def _kinds() -> list[str]:
    from torcheer.training.projects.new_project import KINDS

    return list(KINDS)


def bash(commands: Words) -> str:
    """Return the script for bash."""
    cases = "\n".join(
        f'    {command}) words="{" ".join([*options, *words])}" ;;' for command, (_, options, words) in commands.items()
    )
    return f"""# torcheer: completion for bash
_torcheer() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words="" name
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ "$current" != -* ]]; then
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F _torcheer torcheer
"""


def zsh(commands: Words) -> str:
    """Return the script for zsh."""
    names = "\n".join(f"    {_quoted(f'{command}:{summary}')}" for command, (summary, _, _) in commands.items())
    cases = "\n".join(
        f"    {command}) compadd -- {' '.join([*options, *words])}; _files ;;"
        for command, (_, options, words) in commands.items()
    )
    return f"""#compdef torcheer
# torcheer: completion for zsh
_torcheer() {{
  local -a commands
  commands=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[2] in
{cases}
  esac
}}
if [ "$funcstack[1]" = "_torcheer" ]; then _torcheer; else compdef _torcheer torcheer; fi
"""


def fish(commands: Words) -> str:
    """Return the script for fish."""
    lines = ["# torcheer: completion for fish"]
    for command, (summary, options, words) in commands.items():
        lines.append(f"complete -c torcheer -f -n __fish_use_subcommand -a {command} -d {_quoted(summary)}")
        within = f"complete -c torcheer -n '__fish_seen_subcommand_from {command}'"
        lines += [f"{within} -l {option.removeprefix('--')}" for option in options]
        lines += [f"{within} -a '{' '.join(words)}'"] * bool(words)
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"
