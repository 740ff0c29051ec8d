"""``entrepot completion``: scripts that let a shell complete the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from registry.cli import candidates
from registry.cli.nouns import CommandTable, metavar_of
from registry.cli.parser import Verbs

_SHELLS: Final = ("bash", "zsh", "fish")
_FOLDERS: Final = frozenset({"FOLDER"})
_FILES: Final = frozenset({"FILE"})
_HINT: Final = """so that each new shell has it:
  bash  echo 'source <(entrepot completion bash)' >> ~/.bashrc
  zsh   echo 'eval "$(entrepot completion zsh)"' >> ~/.zshrc  # below compinit
  fish  entrepot completion fish > ~/.config/fish/completions/entrepot.fish
"""


# Bash splits words at the colon and the at sign of a reference. So the words are read off the line
# anew, and what stands before the last such character is cut from the answers.
_BASH: Final = """
_entrepot_names() {
  compgen -W "$(entrepot COMMAND "$1" "$2" --line="$line" 2>/dev/null)" -- "$2"
}

_entrepot() {
  local line="${COMP_LINE:0:COMP_POINT}" word
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *[[:space:]] ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  word="${COMP_WORDS[COMP_CWORD]}"
  _shtab_entrepot
  [[ $word == *[:@]* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[:@]}"}"}")
  return 0
}
complete -o bashdefault -F _entrepot entrepot
"""
_ZSH: Final = """
_entrepot_names() {
  local -a found
  found=("${(@f)$(entrepot COMMAND "$1" "$PREFIX" --line="$LBUFFER" 2>/dev/null)}")
  compadd -a found
}
"""


def add_parsers(commands: Verbs) -> None:
    """Add ``completion``."""
    parser = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete this command",
        epilog=_HINT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=_print)
    candidates.add_parsers(commands)


def _print(options: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - no other command needs it

    from registry.cli.main import make_parser  # noqa: PLC0415 - which adds this module

    parser = make_parser()
    (commands,) = (each for each in parser._actions if isinstance(each, CommandTable))
    nouns = candidates.nouns_of(commands)
    kinds = candidates.KINDS | {metavar_of(nouns[kind]): kind for kind in nouns}
    for action in _arguments(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif kind := kinds.get(str(action.metavar)):
            action.complete = _asking(kind)  # type: ignore[attr-defined]
    functions = _ZSH.replace("COMMAND", candidates.COMMAND) if options.shell == "zsh" else ""
    sys.stdout.write(shtab.complete(parser, options.shell, preamble=functions))
    if options.shell == "bash":
        names = sorted(set(kinds.values()))
        lines = (f'_entrepot_{kind}() {{ _entrepot_names {kind} "$1"; }}\n' for kind in names)
        sys.stdout.write(_BASH.replace("COMMAND", candidates.COMMAND))
        sys.stdout.writelines(lines)
    return 0


def _asking(kind: str) -> dict[str, str]:
    """Return what each shell runs to complete an argument of a kind."""
    return {
        "bash": f"_entrepot_{kind}",
        "zsh": f"_entrepot_names {kind}",
        "fish": f"(entrepot {candidates.COMMAND} {kind} (commandline -ct)"
        " --line=(commandline -cp) 2>/dev/null)",
    }


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments and options of a parser and of all commands under it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _arguments(subparser)
