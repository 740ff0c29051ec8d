"""``entrepot access-keys``: the key pairs by which service accounts sign in."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any, Final

from registry.cli.api import ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import CommandFailure, Missing, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import column, echo, printable, time_text
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.lookup import SERVICE_ACCOUNT, add_named, path_of
from registry.cli.secret_text import KEY_LABELS, add_quiet_secret, show_secret
from registry.cli.spans import span, time_after
from registry.cli.stored_sign_in import StoredSignIn
from registry.cli.token_claims import claims_of
from registry.cli.transport import RequestRefused

_GRACE: Final = timedelta(days=1)
_MAX_ACTIVE: Final = 2
"""How many keys of a service account may work at a time."""
_COLUMNS: Final = (
    column("ACCESS KEY ID", "access_key_id", is_whole=True),
    column("STATUS", "status"),
    column("DESCRIPTION", "description"),
    column("EXPIRES", "expires_at", time_text),
    column("LAST USED", "last_used_at", time_text),
    column("CREATED", "created_at", time_text),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``access-keys`` and its commands."""
    verbs = add_noun(commands, "access-keys", "key pairs by which service accounts sign in")
    listing = add_verb(verbs, "list", _list, "list the keys of a service account, oldest first")
    add_named(listing, SERVICE_ACCOUNT)
    add_quiet(listing, "access key ids")
    create = add_verb(verbs, "create", _create, "create a key; its secret is shown this once")
    add_named(create, SERVICE_ACCOUNT)
    _add_fields(create)
    add_quiet_secret(create, "the secret, so that it can be piped")
    rotate = add_verb(
        verbs, "rotate", _rotate, "create a key, and let the one that it replaces expire"
    )
    add_named(rotate, SERVICE_ACCOUNT)
    _add_key(rotate, is_optional=True)
    _add_fields(rotate)
    old = rotate.add_mutually_exclusive_group()
    old.add_argument(
        "--grace",
        type=span,
        default=_GRACE,
        metavar="SPAN",
        help="how long the old key works on (24h)",
    )
    old.add_argument("--now", action="store_true", help="deactivate the old key at once")
    add_quiet_secret(rotate, "the secret, so that it can be piped")
    update = add_verb(verbs, "update", _update, "activate or deactivate a key; let it expire")
    add_named(update, SERVICE_ACCOUNT)
    _add_key(update)
    update.add_argument("--status", choices=("active", "inactive"))
    _add_fields(update).add_argument(
        "--never-expires", action="store_true", help="take the end away"
    )
    add_force(update)
    deletion = add_verb(verbs, "delete", _delete, "delete a key, with the logins made by it")
    add_named(deletion, SERVICE_ACCOUNT)
    _add_key(deletion)
    add_force(deletion)
    add_confirmation(deletion)


def _add_fields(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add description and end of a key; return the group of options about the end."""
    parser.add_argument("--description", metavar="TEXT", help="for persons, such as where it is")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--expires-in", type=span, metavar="SPAN", help="such as 90d (never)")
    end.add_argument("--expires-at", metavar="TIME", help="such as 2030-01-31T12:00:00Z (never)")
    return end


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a key that the command line gives."""
    fields: dict[str, Any] = {}
    if options.description is not None:
        fields["description"] = options.description
    if options.expires_in is not None:
        fields["expires_at"] = time_after(options.expires_in)
    elif options.expires_at is not None:
        fields["expires_at"] = options.expires_at
    return fields


def _add_key(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    only = "; needed only if there are several" if is_optional else ""
    parser.add_argument(
        "access_key",
        metavar="ACCESS-KEY",
        nargs="?" if is_optional else None,
        help=f"as 'access-keys list' shows it{only}",
    )


def _keys(client: ApiClient, options: argparse.Namespace) -> str:
    """Return the path of the keys of the service account that the command line names."""
    return f"{path_of(client, SERVICE_ACCOUNT, options.service_account)}/access-keys"


def _find_key(client: ApiClient, path: str, options: argparse.Namespace) -> Record:
    """Return a key by its access key id or the id of its record; without one, the only active key.

    Raises:
        Missing: there is no such key.
        Misuse: none is named, and there is not exactly one that is active.

    """
    written, owner = options.access_key, options.service_account
    rows = list(client.rows(path, "access_keys"))
    if written is None:
        rows = [row for row in rows if _is_live(row)]
        if len(rows) != 1:
            names = ", ".join(row["access_key_id"] for row in rows)
            raise Misuse(f"{owner} has {len(rows)} active keys; name the one: {names or 'none'}")
        return rows[0]
    for row in rows:
        if written in (row["access_key_id"], row["id"]):
            return row
    raise Missing(
        f"{owner} has no access key {printable(written)!r}; "
        f"'entrepot access-keys list {owner}' shows those it has"
    )


def _is_live(key: Record) -> bool:
    """Return True if a key is active and has not expired by this machine's clock."""
    end: str | None = key["expires_at"]
    is_over = end is not None and end[:19] <= time_after(timedelta())[:19]
    return key["status"] == "active" and not is_over


def _new_key(client: ApiClient, path: str, options: argparse.Namespace) -> Record:
    """Create a key.

    Raises:
        RequestRefused: also if there are two keys that work, the most that an account may have.

    """
    try:
        made: Record = client.create(path, _fields(options))["access_key"]
    except RequestRefused as error:
        if error.code != "CONFLICT":
            raise
        advice = f"'entrepot access-keys delete {options.service_account} KEY' makes room"
        raise RequestRefused(f"{error}; {advice}", error.status, error.code) from None
    return made


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(_keys(client, options), "access_keys")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["access_key_id"]))


def _create(options: argparse.Namespace) -> int:
    client = open_client(options)
    made = _new_key(client, _keys(client, options), options)
    show_secret(options, f"Created a key of {made['service_account']['name']}", made, KEY_LABELS)
    return 0


def _rotate(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _keys(client, options)
    old = _find_key(client, path, options)
    until = time_after(options.grace)
    if options.now:
        made = _replace_now(client, path, options, old)
        rest = f"{old['access_key_id']} works no more"
    else:
        made = _new_key(client, path, options)
        if old["expires_at"] is None or until[:19] < old["expires_at"][:19]:
            changes = {"expires_at": until}
            old = client.call("PATCH", f"{path}/{old['id']}", changes)["access_key"]
        rest = f"{old['access_key_id']} works until {time_text(old['expires_at'])}"
    owner = made["service_account"]["name"]
    show_secret(options, f"Created a key of {owner}; {rest}", made, KEY_LABELS)
    return 0


def _replace_now(client: ApiClient, path: str, options: argparse.Namespace, old: Record) -> Record:
    """Create a key, and deactivate the `old` one: before, if it is one of the two that may work.

    Raises:
        CommandFailure: the key could not be created; the old one works again, or the message says
            that it does not.

    """
    live = [row for row in client.rows(path, "access_keys") if _is_live(row)]
    if len(live) < _MAX_ACTIVE or not _is_live(old):
        made = _new_key(client, path, options)
        # Forced, should the command be signed in by it: the new key has the same rights.
        client.call("PATCH", f"{path}/{old['id']}", {"status": "inactive"}, {"force": True})
        return made
    owner, name = options.service_account, old["access_key_id"]
    if claims_of(StoredSignIn(options).tokens(in_role=True).token()).akid == name:
        raise CommandFailure(
            f"{owner} has {_MAX_ACTIVE} active keys, the most there may be, and the command is"
            f" signed in by {name}: sign in by the other one and rotate again, or delete that one"
            f" with 'entrepot access-keys delete {owner} KEY'"
        )
    client.call("PATCH", f"{path}/{old['id']}", {"status": "inactive"})
    try:
        return _new_key(client, path, options)
    except CommandFailure as error:
        try:
            client.call("PATCH", f"{path}/{old['id']}", {"status": "active"})
        except CommandFailure:
            again = f"'entrepot access-keys update {owner} {name} --status active'"
            words = f"{error}; {name} is inactive now, and {again} undoes that"
            raise CommandFailure(words) from None
        raise


def _update(options: argparse.Namespace) -> int:
    changes = _fields(options)
    if options.status is not None:
        changes["status"] = options.status
    if options.never_expires:
        changes["expires_at"] = None
    if not changes:
        raise Misuse("say what is to change: --status, --description or when it expires")
    client = open_client(options)
    path = _keys(client, options)
    key = _find_key(client, path, options)
    path = f"{path}/{key['id']}"
    changed = client.call("PATCH", path, changes, forced(options))["access_key"]
    end = changed["expires_at"]
    words = f"{changed['access_key_id']} is {changed['status']}"
    until = "" if end is None else f", until {time_text(end)}"
    echo(f"{words}{until}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _keys(client, options)
    key = _find_key(client, path, options)
    name = key["access_key_id"]
    confirm(options, f"Delete the access key {name} of {options.service_account}?")
    client.call("DELETE", f"{path}/{key['id']}", query=forced(options))
    echo(f"Deleted the access key {name}", options.output)
    return 0
