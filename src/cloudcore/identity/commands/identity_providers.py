"""``entrepot identity-providers``: OpenID Connect providers of an organization."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.nouns import Cell, Deletion, Noun, Option, argument
from cloudcore.identity.commands.options import person
from cloudcore.identity.commands.organizations import ORGANIZATIONS

_FIELDS: Final = (
    Option(
        "scopes",
        "what is asked for besides openid (email, profile)",
        "texts",
        "scope",
        metavar="SCOPE",
    ),
    Option(
        "email_domains",
        "whose addresses the provider is the authority of, such as example.com",
        "texts",
        "email-domain",
        metavar="DOMAIN",
    ),
    Option(
        "email_verified_claim",
        "which claim says that the address was verified (email_verified)",
        metavar="CLAIM",
    ),
    Option(
        "session_hours",
        "after how many hours people sign in anew, with their groups of then (168)",
        "number",
    ),
    Option(
        "creates_people",
        "create persons of these domains at their first sign-in; off unless it is turned on",
        "boolean",
    ),
)
_TYPED: Final = "it is typed without an echo, or read from the standard input"

IDENTITY_PROVIDERS: Final = Noun(
    noun="identity-providers",
    words="where people of an organization sign in (OpenID Connect)",
    parent=ORGANIZATIONS,
    is_below_option=True,
    is_of_account=False,
    caller=person,
    columns=(
        *("name", "status", "issuer"),
        Cell("E-MAIL DOMAINS", "email_domains"),
        *("creates_people", "created_at", "id"),
    ),
    create=(
        argument("name", "what the sign-in page calls it"),
        Option(
            "issuer",
            "where the provider's .well-known/openid-configuration is",
            metavar="URL",
            is_required=True,
        ),
        Option("client_id", "of the client registered there", metavar="ID", is_required=True),
        Option("client_secret", f"the client has none; else {_TYPED}", "asked"),
        Option("groups_claim", "which claim lists a person's groups (groups)", metavar="CLAIM"),
        *_FIELDS,
    ),
    created="Created {name}; register this redirect URI there: {redirect_uri}",
    update=(
        Option("name", "the new one", metavar="NAME"),
        Option("client_secret", f"ask for another secret of the client: {_TYPED}", "secret"),
        Option("client_secret", "the client has no secret any more", "null", "no-client-secret"),
        *_FIELDS,
        Option("status", "inactive: nobody signs in with it", choices=("active", "inactive")),
    ),
    updated="Changed {name}; it is {status}",
    delete=Deletion(
        words="delete an identity provider; its people stay",
        question="Delete {name}, and take the roles that its groups have from its people?",
        said="Deleted {name}; its people stay, without the roles that its groups gave them",
    ),
)

COMMANDS: Final = (IDENTITY_PROVIDERS,)
