"""``entrepot service-accounts``: programs of an account; ``access-keys``: their key pairs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from cloudcore.clock import time_after
from cloudcore.command_failures import CommandFailure, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Command, Deletion, Noun, Option, Record, Secret, argument
from cloudcore.identity.commands.options import DESCRIPTION, FORCE, GRANTS, grants_of

KEY: Final = Secret(
    "the secret, so that it can be piped",
    {"access key id": "access_key_id", "secret access key": "secret_access_key"},
)


def _create(run: Invocation) -> None:
    values, grants = run.values, grants_of(run.values)
    document: dict[str, Any] = {"name": values["name"], "grants": [e._asdict() for e in grants]}
    if "description" in values:
        document["description"] = values["description"]
    until = values.get("expires_at")
    if values.get("access_key", bool(until or grants)):
        document["access_key"] = {"expires_at": until}
    answer = run.client.create(run.path, document)
    name, key = answer["service_account"]["name"], answer.get("access_key")
    rights = ", ".join(each.words for each in grants) or "which may do nothing yet"
    if key is not None:
        login = f"'entrepot login {run.sign_in.url} --access-key-id {key['access_key_id']}'"
        words = f"Created {name}, {rights}; it signs in by {login}, which reads the secret"
        run.say_secret(words, key, KEY, answer)
        return
    advice = f"'entrepot access-keys create {name}' gives it a key"
    if not grants:
        attach = f"'entrepot policies attach POLICY --service-account {name}'"
        advice = f"{attach} gives it rights, {advice}"
    run.say(f"Created {name}, {rights}: {advice}", answer)


SERVICE_ACCOUNTS: Final = Noun(
    noun="service-accounts",
    words="programs of the account, such as CI",
    name_filter="name",
    columns=("name", "status", "description", "last_used_at", "created_at"),
    update=(
        DESCRIPTION,
        Option(
            "status",
            "while it is suspended, its keys and tokens do not work",
            choices=("active", "suspended"),
        ),
        FORCE,
    ),
    updated="Changed {name}; it is {status}",
    delete=Deletion(
        words="delete a service account with its keys",
        question="Delete the service account {name} with its access keys?",
        said="Deleted {name}; its keys and tokens do not work any more",
        options=(FORCE,),
    ),
    commands=(
        Command(
            verb="create",
            words="create a service account",
            is_on_list=True,
            options=(
                argument("name", "in lower case, such as ci"),
                DESCRIPTION,
                *GRANTS,
                Option("access_key", "with an access key (so if it has rights)", "boolean", "key"),
                Option(
                    "expires_at", "how long the key works, as 90d (for ever)", "until", "expires-in"
                ),
            ),
            run=_create,
            secret=KEY._replace(words="the secret of the key, so that it can be piped"),
        ),
    ),
)


_GRACE: Final = timedelta(days=1)
_MAX_ACTIVE: Final = 2
"""Maximum number of active keys of a service account."""
_ROOM: Final = "'entrepot access-keys delete {service_account} KEY' makes room"
_FIELDS: Final = (
    Option("description", "for persons, such as where it is"),
    Option("expires_at", "such as 90d (never)", "until", "expires-in"),
    Option("expires_at", "such as 2030-01-31T12:00:00Z (never)", metavar="TIME"),
)


def _updated(run: Invocation, key: Record) -> str:
    words = "{access_key_id} is {status}"
    return run.text(f"{words}, until {{expires_at}}" if key["expires_at"] else words, key)


def _rotate(run: Invocation) -> None:
    old = _old(run)
    name, values = old["access_key_id"], run.values
    fields = {each: values[each] for each in values if each in ("description", "expires_at")}
    until = values.get("grace", time_after(_GRACE))
    if values.get("now"):
        made = _replace_now(run, fields, old)
        rest = f"{name} works no more"
    else:
        made = _new(run, fields)
        if old["expires_at"] is None or until[:19] < old["expires_at"][:19]:
            changes = {"expires_at": until}
            old = run.client.call("PATCH", f"{run.path}/{old['id']}", changes)["access_key"]
        rest = run.text("{access_key_id} works until {expires_at}", old)
    run.say_secret(f"Created a key of {made['service_account']['name']}; {rest}", made, KEY)


def _old(run: Invocation) -> Record:
    """Return the named key, or else the only active key.

    Raise `Missing` if there is no such key, `Misuse` if none is named, and not exactly one is
    active.
    """
    if "access_key" in run.values:
        return run.find(ACCESS_KEYS, run.values["access_key"])
    rows = [row for row in run.client.rows(run.path, "access_keys") if _is_live(row)]
    if len(rows) != 1:
        names = ", ".join(row["access_key_id"] for row in rows)
        owner = run.above.written
        raise Misuse(f"{owner} has {len(rows)} active keys; name the one: {names or 'none'}")
    return rows[0]


def _is_live(key: Record) -> bool:
    """Return True if a key is active and has not expired by this machine's clock."""
    end: str | None = key["expires_at"]
    is_over = end is not None and end[:19] <= time_after(timedelta())[:19]
    return key["status"] == "active" and not is_over


def _new(run: Invocation, fields: dict[str, Any]) -> Record:
    try:
        made: Record = run.client.create(run.path, fields)["access_key"]
    except RequestRefused as error:
        if error.code != "CONFLICT":
            raise
        raise error.with_advice(_ROOM.format(service_account=run.above.written)) from None
    return made


def _replace_now(run: Invocation, fields: dict[str, Any], old: Record) -> Record:
    """Create a key and deactivate the `old` one; deactivate it first if two keys are active.

    Return the new key. Raise `CommandFailure` if it could not be created. The old key is then
    active as before, unless the message says otherwise.
    """
    path, owner, name = f"{run.path}/{old['id']}", run.above.written, old["access_key_id"]
    live = [row for row in run.client.rows(run.path, "access_keys") if _is_live(row)]
    if len(live) < _MAX_ACTIVE or not _is_live(old):
        made = _new(run, fields)
        # Forced, in case the command is signed in with the old key: the new one has equal rights.
        run.client.call("PATCH", path, {"status": "inactive"}, {"force": True})
        return made
    if run.sign_in.claims().akid == name:
        raise CommandFailure(
            f"{owner} has {_MAX_ACTIVE} active keys, the most there may be, and the command is"
            f" signed in by {name}: sign in by the other one and rotate again, or delete that one"
            f" with 'entrepot access-keys delete {owner} KEY'"
        )
    run.client.call("PATCH", path, {"status": "inactive"})
    try:
        return _new(run, fields)
    except CommandFailure as error:
        try:
            run.client.call("PATCH", path, {"status": "active"})
        except CommandFailure:
            again = f"'entrepot access-keys update {owner} {name} --status active'"
            words = f"{error}; {name} is inactive now, and {again} undoes that"
            raise CommandFailure(words) from None
        raise


ACCESS_KEYS: Final = Noun(
    noun="access-keys",
    words="key pairs by which service accounts sign in",
    parent=SERVICE_ACCOUNTS,
    name="access_key_id",
    known_by="as 'access-keys list' shows it",
    columns=(
        *("access_key_id", "status", "description", "expires_at", "last_used_at", "created_at"),
    ),
    create=_FIELDS,
    created="Created a key of {service_account.name}",
    secret=KEY,
    update=(
        Option("status", "inactive: it does not sign in", choices=("active", "inactive")),
        *_FIELDS,
        Option("expires_at", "take the end away", "null", "never-expires"),
        FORCE,
    ),
    updated=_updated,
    delete=Deletion(
        words="delete a key, with the logins made by it",
        question="Delete the access key {access_key_id}?",
        said="Deleted the access key {access_key_id}",
        options=(FORCE,),
    ),
    conflicts={"create": _ROOM},
    commands=(
        Command(
            verb="rotate",
            words="create a key, and let the one that it replaces expire",
            is_on_list=True,
            options=(
                argument(
                    "access_key",
                    "as 'access-keys list' shows it; needed only if there are several",
                    is_optional=True,
                ),
                *_FIELDS,
                Option("grace", "how long the old key works on (24h)", "until", group="old"),
                Option("now", "deactivate the old key at once", "flag", group="old"),
            ),
            run=_rotate,
            secret=KEY,
        ),
    ),
)

COMMANDS: Final = (SERVICE_ACCOUNTS, ACCESS_KEYS)
