"""Keys of the account, and the part of a page that binds an account or a repository to a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cloudcore.kms import key
from registry.console.addresses import KEYS
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import NO_REFUSAL, FormRefusal
from registry.console.nouns.noun_pages import (
    CREATED,
    DESCRIPTION,
    TAGS,
    Column,
    CustomMethod,
    Input,
    RecordJson,
    name_of,
)
from registry.console.nouns.resources import noun_of
from registry.console.page_request import PageRequest

FIELD: Final = "kms_key"
"""The field of the form that binds a key."""
_SHOWN: Final = 20
"""Maximum number of bindings in the history on a page."""


class EncryptionCard(NamedTuple):
    """The part of a page about the key that seals new blobs."""

    binding: dict[str, Any]
    history: list[dict[str, Any]]
    """The latest bindings, newest first, ended ones too."""
    bound_count: int
    keys: list[str] | None
    """Names of the keys that can seal blobs, or None if the role may not list them."""
    refusal: FormRefusal


async def read_encryption_card(
    page: PageRequest, scope: str, refusal: FormRefusal = NO_REFUSAL
) -> EncryptionCard | None:
    """Read the card of an account or a repository; None if the role may not read the binding.

    `scope` is ``/v1`` or the repository's path on it; `refusal` is about a form of the page.
    """
    found = await unless_refused(page.api.get(f"{scope}/encryption-binding"))
    if found is None:
        return None
    past = await page.api.get(f"{scope}/encryption-bindings", limit=_SHOWN)
    keys = await unless_refused(page.api.get("/v1/keys", state="enabled", limit=200))
    return EncryptionCard(
        found["encryption_binding"],
        past["encryption_bindings"],
        past["meta"]["total"],
        keys and [each["name"] for each in keys["keys"] if each["key_spec"] == "aes-256"],
        refusal if FIELD in page.form else NO_REFUSAL,
    )


async def save_encryption_card(page: PageRequest, scope: str) -> None:
    """Bind the account or repository to the key in the form; an empty field removes the binding.

    Raise `Refused` if ``/v1`` refuses the change.
    """
    path, key = f"{scope}/encryption-binding", page.text(FIELD)
    if key:
        await page.api.change("PUT", path, {FIELD: key})
        return
    try:
        await page.api.change("DELETE", path)
    except Refused as error:
        if error.status != 404:  # the binding may be gone, as after a reload
            raise


_STATES: Final = {
    "enabled": "enabled",
    "disabled": "disabled",
    "pending_deletion": "deletion pending",
    "deleted": "deleted",
}
_COLUMNS: Final = (
    Column("State", "state", "mark", _STATES, usual="enabled"),
    Column("Kind", "key_spec"),
    Column("Version", "current_version", "number"),
)


async def _read_usage(page: PageRequest, record: RecordJson) -> Mapping[str, Any]:
    """Read what the key protects; ``usage`` is None if the role may not read it."""
    found = await unless_refused(page.api.get(f"/v1/key-usage/{record['id']}"))
    return {"usage": found and found["key_usage"]}


def _is_owned(key: RecordJson, *states: str) -> bool:
    return key["origin"] != "platform" and key["state"] in states


KEY: Final = replace(
    noun_of(
        key.KEY,
        "A key seals what is pushed to the repositories that are bound to it; the key “platform”"
        " seals the rest. What only a deleted key opened can never be read again.",
    ),
    section="settings",
    path=KEYS,
    unnamed="A deleted key",
    columns=(*_COLUMNS, CREATED),
    details=(*_COLUMNS, Column("Use", "key_usage"), CREATED),
    creates=(name_of(63), DESCRIPTION, TAGS),
    can_change=lambda key: key["state"] != "deleted",
    created="The key was created. Repositories can be bound to it now.",
    methods=(
        CustomMethod(
            "rotate",
            "Rotate",
            "kms:RotateKey",
            "The key has new material, which seals from now on. The old still opens.",
            can=lambda key: key["state"] == "enabled" and key["key_spec"] == "aes-256",
        ),
        CustomMethod(
            "enable",
            "Enable",
            "kms:EnableKey",
            "The key is enabled.",
            can=lambda key: key["state"] == "disabled",
        ),
        CustomMethod(
            "cancel-deletion",
            "Cancel the deletion of",
            "kms:CancelKeyDeletion",
            "The key stays. It is disabled: enable it to use it again.",
            can=lambda key: key["state"] == "pending_deletion",
        ),
        CustomMethod(
            "disable",
            "Disable",
            "kms:DisableKey",
            "The key is disabled. What it seals can be neither pulled nor pushed.",
            warns="What it seals can be neither pulled nor pushed, from the next request on, until"
            " it is enabled again.",
            can=lambda key: _is_owned(key, "enabled"),
        ),
        CustomMethod(
            "delete",
            "Delete",
            "kms:ScheduleKeyDeletion",
            "The key will be deleted. Until then, the deletion can be cancelled.",
            asks="It stops all use of the key at once.",
            can=lambda key: _is_owned(key, "enabled", "disabled"),
            inputs=(
                Input(
                    "pending_window_days",
                    "Days in which the deletion can be cancelled",
                    "number",
                    "A whole number from 7 to 30.",
                    longest=2,
                    is_required=True,
                    default=30,
                ),
            ),
            is_deletion=True,
            is_grave=True,
            stays=True,
        ),
    ),
    parts="noun_key.html",
    more=_read_usage,
)
