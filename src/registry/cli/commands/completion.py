"""``entrepot completion`` prints a shell's completion script, which calls ``entrepot __complete``.

``__complete`` prints names while a command is typed. It waits only briefly for the registry, and
prints nothing on any failure, so the typed line stays unchanged.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cloudcore.command_failures import CommandFailure, Missing
from cloudcore.commands.invocation import words_of
from cloudcore.commands.noun_parsers import CommandTable, metavar_of
from cloudcore.commands.nouns import Noun
from cloudcore.errors import PlatformError
from cloudcore.identity.commands.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.commands.options import ORGANIZATIONS_PATH
from cloudcore.identity.commands.roles import ROLES
from cloudcore.identity.commands.service_accounts import SERVICE_ACCOUNTS
from registry.cli.client.api import ApiClient, Query
from registry.cli.client.credentials import credentials_path
from registry.cli.client.references import repository_path
from registry.cli.client.sign_in import SignIn, choose_registry, transport_to

_SHELLS: Final = ("bash", "zsh", "fish")
_HINT: Final = """so that each new shell has it:
  bash  echo 'source <(entrepot completion bash)' >> ~/.bashrc
  zsh   echo 'eval "$(entrepot completion zsh)"' >> ~/.zshrc  # below compinit
  fish  entrepot completion fish > ~/.config/fish/completions/entrepot.fish
"""


# Bash splits words at the colon and the at sign of a reference. So the words are split again
# from the line, and the part before the last such character is cut from the answers.
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


def add_parsers(commands: CommandTable) -> None:
    """Add ``completion``."""
    parser = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete this command",
        epilog=_HINT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=_print)
    add_complete(commands)


def _print(options: argparse.Namespace) -> None:
    import shtab  # noqa: PLC0415 - no other command needs it

    from registry.cli.main import make_parser  # noqa: PLC0415 - which adds this module

    parser = make_parser()
    (commands,) = (each for each in parser._actions if isinstance(each, CommandTable))
    nouns = nouns_of(commands)
    kinds = KINDS | {metavar_of(nouns[kind]): kind for kind in nouns}
    for action in _arguments(parser):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "FOLDER":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif kind := kinds.get(str(action.metavar)):
            action.complete = _asking(kind)  # type: ignore[attr-defined]
    functions = _ZSH.replace("COMMAND", COMMAND) if options.shell == "zsh" else ""
    sys.stdout.write(shtab.complete(parser, options.shell, preamble=functions))
    if options.shell == "bash":
        names = sorted(set(kinds.values()))
        lines = (f'_entrepot_{kind}() {{ _entrepot_names {kind} "$1"; }}\n' for kind in names)
        sys.stdout.write(_BASH.replace("COMMAND", COMMAND))
        sys.stdout.writelines(lines)


def _asking(kind: str) -> dict[str, str]:
    """Map each shell to its code for completing an argument with names of a kind."""
    return {
        "bash": f"_entrepot_{kind}",
        "zsh": f"_entrepot_names {kind}",
        "fish": f"(entrepot {COMMAND} {kind} (commandline -ct)"
        " --line=(commandline -cp) 2>/dev/null)",
    }


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments and options of a parser and of all commands under it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _arguments(subparser)


COMMAND: Final = "__complete"
KINDS: Final = {
    "REPOSITORY": "repository",
    "IMAGE": "image",
    "REPOSITORY:TAG": "image",
    "REPOSITORY[:TAG]": "image",
    "REPOSITORY[:TAG|@DIGEST]": "image",
    "TAG": "tag",
    "DIGEST|TAG": "tag",
    "RESOURCE": "repository",
    "PRINCIPAL": "principal",
    "ACTION": "action",
    "IDENTITY-PROVIDER": "identity-provider",
}
"""Maps the metavar of an argument to the kind of names that are offered for it."""

_PROVIDER: Final = "identity-provider"
_PLAIN: Final = re.compile(r"[\w.@:/+=-]+", re.ASCII)
"""Only names that no shell expands are printed: bash would run a command in backticks."""
_TIMEOUT_SECONDS: Final = 2
_MOST: Final = 100
_MOST_ARGUMENTS: Final = 3
"""Maximum number of typed arguments that are tried as the name of a repository."""


def add_complete(commands: CommandTable) -> None:
    """Add ``__complete``, which is hidden from help."""
    parser = commands.add_parser(COMMAND)
    described = nouns_of(commands)
    parser.add_argument("kind", choices=sorted({*KINDS.values(), *described}))
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--line", default="", help="what is typed so far")
    parser.set_defaults(run=partial(_print_names, described))


def nouns_of(commands: CommandTable) -> Mapping[str, Noun]:
    """Map kinds to the nouns whose lists have a fixed path."""
    return {
        kind_of(each): each
        for each in commands.described
        if each.path.startswith("/") and each.columns and each.locate is None
    }


def kind_of(noun: Noun) -> str:
    """Return the kind that ``__complete`` uses for the noun's names."""
    return words_of(noun).replace(" ", "-")


def _print_names(described: Mapping[str, Noun], options: argparse.Namespace) -> None:
    try:
        path = credentials_path(os.environ)
        url = choose_registry(None, os.environ, path)
        transport = transport_to(url, path, timeout_seconds=_TIMEOUT_SECONDS)
        noun = described.get(options.kind)
        is_of_people = options.kind == _PROVIDER or (noun is not None and noun.caller is not None)
        client = ApiClient(transport, SignIn(transport, path, in_role=not is_of_people))
        if noun is not None:
            found = _names(client, noun, options.word)
        else:
            found = candidates(client, options.kind, options.word, options.line)
    except (CommandFailure, PlatformError, OSError):
        return
    sys.stdout.writelines(f"{each}\n" for each in found if _PLAIN.fullmatch(each))


def candidates(client: ApiClient, kind: str, word: str, line: str = "") -> Sequence[str]:
    """Return up to 100 names of a kind that begin with `word`; for images, references by tag.

    For tags, `line` is the command line typed so far; it names the repository.
    """
    if kind == "principal":
        return _principals(client, word)
    if kind == "action":
        return _actions(client, word)
    if kind == "tag":
        return _tags_of_line(client, word, line)
    if kind == _PROVIDER:
        return _providers(client, word)
    name, colon, prefix = word.partition(":")
    if kind == "image" and colon:
        return _tags(client, name, prefix)
    query: Query = {"name_prefix": word, "limit": _MOST}
    rows = client.call("GET", "/v1/repositories", query=query)["repositories"]
    names = [str(row["name"]) for row in rows]
    if kind == "image" and len(names) == 1:
        return _tags(client, names[0], "") or names
    return names


def _tags(client: ApiClient, repository: str, prefix: str) -> Sequence[str]:
    return [f"{repository}:{name}" for name in _tag_names(client, repository, prefix)]


def _tag_names(client: ApiClient, repository: str, prefix: str) -> Sequence[str]:
    query: Query = {"prefix": prefix, "limit": _MOST}
    path = f"{repository_path(client, repository)}/tags"
    return [str(row["name"]) for row in client.call("GET", path, query=query)["tags"]]


def _tags_of_line(client: ApiClient, word: str, line: str) -> Sequence[str]:
    """Return the tags that begin with `word`, of the first repository in the typed line."""
    _, _, typed = line.rpartition("entrepot ")
    arguments = [each for each in typed.split()[2:] if not each.startswith("-")]
    for each in arguments[:_MOST_ARGUMENTS]:
        try:
            return _tag_names(client, each.partition(":")[0].partition("@")[0], word)
        except Missing:  # the value of an option
            continue
    return ()


def _principals(client: ApiClient, word: str) -> Sequence[str]:
    """Return service accounts by name, and roles as ``role/NAME``."""
    kind, slash, name = word.partition("/")
    roles = _names(client, ROLES, name if slash and kind == "role" else "")
    named = [*_names(client, SERVICE_ACCOUNTS, word), *(f"role/{each}" for each in roles)]
    return [each for each in named if each.startswith(word)]


def _actions(client: ApiClient, word: str) -> Sequence[str]:
    rows = client.call("GET", "/v1/actions")["actions"]
    return [str(row["name"]) for row in rows if row["name"].startswith(word)]


def _names(client: ApiClient, noun: Noun, word: str) -> Sequence[str]:
    rows = client.call("GET", noun.path, query={"limit": _MOST})[noun.many]
    return [str(row[noun.name]) for row in rows if row[noun.name].startswith(word)]


def _providers(client: ApiClient, word: str) -> Sequence[str]:
    """Return the identity providers of the organizations that the person owns."""
    rows = client.call("GET", ORGANIZATIONS_PATH, query={"limit": _MOST})["organizations"]
    owned = [row["id"] for row in rows if row["role"] == "owner" and not row["is_personal"]]
    paths = [f"{ORGANIZATIONS_PATH}/{each}/{IDENTITY_PROVIDERS.path}" for each in owned]
    return [
        name
        for path in paths
        for name in _names(client, replace(IDENTITY_PROVIDERS, path=path), word)
    ]
