"""``entrepot service-accounts``: the programs of an account, such as CI."""

from __future__ import annotations

from typing import Any, Final

from cloudcore.command_line import Act, Deletion, Invocation, Noun, Option, Secret, argument
from cloudcore.identity.commands.options import DESCRIPTION, FORCE, GRANTS, grants_of

KEY: Final = Secret(
    "the secret, so that it can be piped",
    {"access key id": "access_key_id", "secret access key": "secret_access_key"},
)


def _create(run: Invocation) -> bool:
    """Create a service account, with the rights and the key that it shall have."""
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
        return True
    advice = f"'entrepot access-keys create {name}' gives it a key"
    if not grants:
        attach = f"'entrepot policies attach POLICY --service-account {name}'"
        advice = f"{attach} gives it rights, {advice}"
    run.say(f"Created {name}, {rights}: {advice}", answer)
    return True


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
    acts=(
        Act(
            verb="create",
            words="create a service account",
            is_of_all=True,
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

COMMANDS: Final = (SERVICE_ACCOUNTS,)
