"""The notices that pages show once, after a change, with a button that undoes it.

A notice is in a sealed cookie, which the page that shows it deletes: a reload shows it no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

NOTICE_COOKIE: Final = "entrepot_console_notice"
NOTICE_SECONDS: Final = 60
"""A browser that comes later shows no notice."""

NOTICES: Final[Mapping[str, str]] = {
    "repository-created": "The repository is there. Push to it with the lines below.",
    "repository-deleted": "The repository was deleted. What can be restored is listed here.",
    "repository-restored": "The repository is back, with all it held.",
    "repository-public": "Everyone can pull from the repository now.",
    "repository-private": "Nobody can pull without a sign-in any more, within five minutes.",
    "image-deleted": "The image was deleted. What can be restored is listed here.",
    "image-restored": "The image is back.",
    "images-deleted": "The images were deleted, with their tags.",
    "images-restored": "The images are back.",
    "tag-moved": "The tag was moved.",
    "tag-created": "The tag was created.",
    "tag-deleted": "The tag was deleted; its image stays. What can be restored is listed here.",
    "tag-restored": "The tag is back.",
    "pinned": "The image is pinned: no lifecycle rule expires it.",
    "unpinned": "The pin was taken away.",
    "policy-saved": "The policy was saved.",
    "policy-deleted": "The policy was deleted.",
    "run-started": "A run has begun.",
    "settings-saved": "The settings were saved.",
    "encryption-saved": "Saved. It applies to what is pushed from now on.",
    "object-deleted": "The object was deleted.",
    "rule-created": "The rule was created.",
    "rule-deleted": "The rule was deleted.",
    "mirror-created": "The mirror was created. Test whether its upstream can be asked.",
    "mirror-saved": "The mirror was saved.",
    "mirror-deleted": "The mirror was deleted. What it has cached stays.",
    "key-saved": "The access key was saved.",
    "key-deleted": "The access key was deleted. What it had logged in works no more.",
    "member-saved": "The change was saved.",
    "member-removed": "The member was removed.",
    "person-deleted": "The person was deleted.",
    "invitation-revoked": "The invitation was revoked. Its code works no more.",
    "provider-added": "The provider was added. Register its redirect URI there.",
    "provider-saved": "The provider was saved.",
    "provider-deleted": "The provider was deleted, with the roles that its groups gave.",
    "password-changed": "Your password was changed. Your other sessions have ended, and so have"
    " your passwords for container clients.",
    "container-password-revoked": "The password was revoked. Clients get no more tokens by it.",
    "account-created": "The account was created. “Work in it” below takes you there.",
    "account-suspended": "The account is suspended: nobody can act in it until it is resumed.",
    "account-resumed": "The account works again.",
    "role-saved": "The role was saved.",
    "role-deleted": "The role was deleted. Its sessions have ended.",
    "role-assigned": "The role was assigned.",
    "role-unassigned": "The role was taken away.",
    "group-assigned": "The group has the role: its people from their next sign-in on.",
    "group-unassigned": "The role was taken from the group.",
    "policy-created": "The policy was created. Service accounts and roles can have it now.",
    "policy-attached": "The policy was attached, and holds at once.",
    "policy-detached": "The policy was detached.",
    "collection-started": "A run of the collector has started.",
    "sign-in-over": "Your sign-in had ended. If you sent a form, sign in and send it again.",
}
"""Texts by name."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A notice to show, and the form that undoes the change."""

    text: str
    undo: str = ""
    """Path of a page that takes a POST; empty if nothing can be undone."""
    fields: Mapping[str, str] = {}
    """Fields of that POST, but for the CSRF token."""
    undo_action: str = ""
    """The action that the POST needs."""
    undo_crn: str = ""
    """The resource on which it needs it; empty if that is not known."""
