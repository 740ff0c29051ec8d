"""``entrepot __complete``: the names that a shell offers while a command is typed.

It asks the registry within a short time. On any failure it prints nothing: the shell then offers
nothing, and the line that is being typed stays as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cloudcore.command_line import Noun
from cloudcore.errors import PlatformError
from cloudcore.identity.commands.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.commands.options import ORGANIZATIONS_PATH
from cloudcore.identity.commands.roles import ROLES
from cloudcore.identity.commands.service_accounts import SERVICE_ACCOUNTS
from registry.cli.api import ApiClient, Query
from registry.cli.credentials import credentials_path
from registry.cli.failure import CommandFailure, Missing
from registry.cli.invocation import words_of
from registry.cli.nouns import CommandTable
from registry.cli.parser import Verbs
from registry.cli.references import repository_path
from registry.cli.sign_in import SignIn, choose_registry, transport_to

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
"""What is offered for an argument, by its metavar."""

_PROVIDER: Final = "identity-provider"
_PLAIN: Final = re.compile(r"[\w.@:/+=-]+", re.ASCII)
"""What no shell expands: bash would run a command that stood between backticks."""
_TIMEOUT_SECONDS: Final = 2
_MOST: Final = 100
_MOST_ARGUMENTS: Final = 3
"""How many arguments are tried as the name of a repository."""


def add_parsers(commands: Verbs) -> None:
    """Add ``__complete``, which no help shows."""
    parser = commands.add_parser(COMMAND)
    described = nouns_of(commands)
    parser.add_argument("kind", choices=sorted({*KINDS.values(), *described}))
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--line", default="", help="what is typed so far")
    parser.set_defaults(run=partial(_print, described))


def nouns_of(commands: Verbs) -> Mapping[str, Noun]:
    """Return the described nouns by kind, but those whose names no list has by itself."""
    nouns = commands.described if isinstance(commands, CommandTable) else ()
    return {
        kind_of(each): each
        for each in nouns
        if each.path.startswith("/") and each.columns and each.locate is None
    }


def kind_of(noun: Noun) -> str:
    """Return what the names of a described noun are asked for as."""
    return words_of(noun).replace(" ", "-")


def _print(described: Mapping[str, Noun], options: argparse.Namespace) -> int:
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
        return 0
    sys.stdout.writelines(f"{each}\n" for each in found if _PLAIN.fullmatch(each))
    return 0


def candidates(client: ApiClient, kind: str, word: str, line: str = "") -> Sequence[str]:
    """Return up to 100 names that begin with a word; of images, references by tag.

    Tags are those of the repository that the `line` typed so far names.
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
    """Return tags of the first repository among the arguments of the command in a line."""
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
