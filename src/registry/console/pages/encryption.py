"""The card of the key under which a repository, or the account, stores its blobs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import PageRequest
from registry.console.pages.refusals import NO_COMPLAINT, Complaint

FIELD: Final = "kms_key"
"""The field of the form that binds a key."""
_SHOWN: Final = 20
"""Earlier bindings on a page."""
_MOST_KEYS: Final = 200


class EncryptionCard(NamedTuple):
    """What the card shows."""

    binding: dict[str, Any]
    history: list[dict[str, Any]]
    """Its first, newest first."""
    bound_count: int
    keys: list[str] | None
    """Names of the keys that can seal blobs, or None if the role may not list them."""
    complaint: Complaint


async def read_card(
    page: PageRequest, scope: str, complaint: Complaint = NO_COMPLAINT
) -> EncryptionCard | None:
    """Return the card of ``/v1`` or of the repository at a path; None if the role may not."""
    found = await unless_refused(page.api.get(f"{scope}/encryption-binding"))
    if found is None:
        return None
    past = await page.api.get(f"{scope}/encryption-bindings", limit=_SHOWN)
    keys = await unless_refused(page.api.get("/v1/keys", state="enabled", limit=_MOST_KEYS))
    return EncryptionCard(
        found["encryption_binding"],
        past["encryption_bindings"],
        past["meta"]["total"],
        keys and [each["name"] for each in keys["keys"] if each["key_spec"] == "aes-256"],
        complaint,
    )


async def save_card(page: PageRequest, scope: str) -> None:
    """Bind what is at a path to the key of the form; an empty field ends its binding.

    Raises:
        Refused: by ``/v1``.

    """
    path, key = f"{scope}/encryption-binding", page.form.get(FIELD, "").strip()
    if key:
        await page.api.change("PUT", path, {FIELD: key})
        return
    try:
        await page.api.change("DELETE", path)
    except Refused as error:
        if error.status != 404:  # there may be none to end, as after a reload
            raise
