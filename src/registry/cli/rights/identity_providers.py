"""``entrepot identity-providers``: where the people of an organization sign in."""

from __future__ import annotations

import argparse
from typing import Any, Final

from registry.cli.api import ApiClient, Record
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Run, Verbs, add_noun, add_verb, repeatable
from registry.cli.output import column, echo, time_text, write_record
from registry.cli.rights.lookup import Kind, find
from registry.cli.rights.people import (
    add_organization,
    find_organization,
    open_person,
    providers_of,
)
from registry.cli.secret_text import read_secret

_COLUMNS: Final = (
    column("NAME", "name"),
    column("STATUS", "status"),
    column("ISSUER", "issuer"),
    column("E-MAIL DOMAINS", "email_domains"),
    column("CREATES PEOPLE", "creates_people"),
    column("CREATED", "created_at", time_text),
    column("ID", "id", is_whole=True),
)
_TYPED: Final = "The client secret is typed without an echo, or read from the standard input."


def add_parsers(commands: Verbs) -> None:
    """Add ``identity-providers`` and its commands."""
    verbs = add_noun(
        commands, "identity-providers", "where people of an organization sign in (OpenID Connect)"
    )
    listing = add_verb(verbs, "list", _list, "list the identity providers by name")
    add_organization(listing)
    add_quiet(listing, "names")
    _add(verbs, "show", _show, "show an identity provider, with its redirect URI")
    create = add_verb(verbs, "create", _create, "let people sign in at an identity provider")
    create.epilog = f"{_TYPED} The redirect URI that is shown is to be registered at the provider."
    create.add_argument("name", metavar="NAME", help="what the sign-in page calls it")
    create.add_argument(
        "--issuer",
        metavar="URL",
        required=True,
        help="where the provider's .well-known/openid-configuration is",
    )
    create.add_argument(
        "--client-id", metavar="ID", required=True, help="of the client registered there"
    )
    create.add_argument(
        "--no-client-secret", action="store_true", help="the client has none; do not ask for it"
    )
    create.add_argument(
        "--groups-claim", metavar="CLAIM", help="which claim lists a person's groups (groups)"
    )
    _add_fields(create)
    add_organization(create)
    update = _add(
        verbs, "update", _update, "change an identity provider; issuer, client and groups stay"
    )
    update.epilog = _TYPED
    update.add_argument("--name", metavar="NAME", help="the new one")
    secret = update.add_mutually_exclusive_group()
    secret.add_argument(
        "--client-secret", action="store_true", help="ask for another secret of the client"
    )
    secret.add_argument(
        "--no-client-secret", action="store_true", help="the client has no secret any more"
    )
    _add_fields(update)
    update.add_argument(
        "--status", choices=("active", "inactive"), help="inactive: nobody signs in with it"
    )
    deletion = _add(verbs, "delete", _delete, "delete an identity provider; its people stay")
    add_confirmation(deletion)


def _add(verbs: Verbs, verb: str, run: Run, words: str) -> argparse.ArgumentParser:
    parser = add_verb(verbs, verb, run, words)
    parser.add_argument("identity_provider", metavar="IDENTITY-PROVIDER", help="name, id or CRN")
    add_organization(parser)
    return parser


def _add_fields(parser: argparse.ArgumentParser) -> None:
    """Add what can be changed later, but for name, secret and status."""
    parser.add_argument(
        "--scope",
        action="append",
        dest="scopes",
        metavar="SCOPE",
        help="what is asked for besides openid; repeatable, replaces all (email, profile)",
    )
    repeatable(
        parser,
        "--email-domain",
        "--no-email-domains",
        "DOMAIN",
        "whose addresses the provider is the authority of, such as example.com",
    )
    parser.add_argument(
        "--email-verified-claim",
        metavar="CLAIM",
        help="which claim says that the address was verified (email_verified)",
    )
    parser.add_argument(
        "--session-hours",
        type=int,
        metavar="N",
        help="after how many hours people sign in anew, with their groups of then (168)",
    )
    parser.add_argument(
        "--creates-people",
        action=argparse.BooleanOptionalAction,
        help="create persons of these domains at their first sign-in; off unless it is turned on",
    )


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a provider that the command line gives, but for the secret."""
    given = {
        "name": options.name,
        "scopes": options.scopes,
        "email_domains": options.email_domain,
        "email_verified_claim": options.email_verified_claim,
        "session_hours": options.session_hours,
        "creates_people": options.creates_people,
    }
    return {name: value for name, value in given.items() if value is not None}


def _read_client_secret() -> str:
    return read_secret("Client secret: ", "client secret")


def _open(options: argparse.Namespace) -> tuple[ApiClient, Kind]:
    """Return a client of the person, and where ``/v1`` has the organization's providers."""
    client = open_person(options)
    return client, providers_of(find_organization(client, options)["id"])


def _find(options: argparse.Namespace) -> tuple[ApiClient, Record, str]:
    """Return a client, the provider that the command line names, and its path."""
    client, kind = _open(options)
    found = find(client, kind, options.identity_provider)
    return client, found, f"{kind.path}/{found['id']}"


def _list(options: argparse.Namespace) -> int:
    client, kind = _open(options)
    rows = client.rows(kind.path, kind.fields)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))


def _show(options: argparse.Namespace) -> int:
    write_record(_find(options)[1], options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    fields = {**_fields(options), "issuer": options.issuer, "client_id": options.client_id}
    if options.groups_claim is not None:
        fields["groups_claim"] = options.groups_claim
    client, kind = _open(options)
    if not options.no_client_secret:
        fields["client_secret"] = _read_client_secret()
    made = client.create(kind.path, fields)[kind.field]
    words = f"Created {made['name']}; register this redirect URI there: {made['redirect_uri']}"
    echo(words, options.output, made)
    return 0


def _update(options: argparse.Namespace) -> int:
    changes = _fields(options)
    if options.status is not None:
        changes["status"] = options.status
    if not (changes or options.client_secret or options.no_client_secret):
        raise Misuse(
            "say what is to change: --name, --client-secret, --scope, --email-domain, "
            "--email-verified-claim, --session-hours, --creates-people or --status"
        )
    client, _, path = _find(options)
    if options.client_secret:
        changes["client_secret"] = _read_client_secret()
    elif options.no_client_secret:
        changes["client_secret"] = None
    changed = client.call("PATCH", path, changes)["identity_provider"]
    echo(f"Changed {changed['name']}; it is {changed['status']}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client, found, path = _find(options)
    name = found["name"]
    confirm(options, f"Delete {name}, and take the roles that its groups have from its people?")
    client.call("DELETE", path)
    words = f"Deleted {name}; its people stay, without the roles that its groups gave them"
    echo(words, options.output)
    return 0
