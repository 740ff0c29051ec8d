"""Event rules: which events of the account's resources go to which topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.paths import SETTINGS

_PATH: Final = f"{SETTINGS}/events"
_API: Final = "/v1/event-rules"
_PAGE: Final = 50
_INLINE: Final = (400, 403, 404, 409)
"""Statuses of errors that are shown beside the form."""

FAMILIES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "registry.*": (
        "Repositories",
        {
            "registry.image.pushed": "An image was pushed",
            "registry.image.cached": "An image was fetched by the pull-through cache",
            "registry.image.deleted": "An image was deleted",
            "registry.tag.moved": "A tag was created, moved or restored",
            "registry.tag.deleted": "A tag was deleted",
            "registry.repository.created": "A repository was created",
            "registry.repository.deleted": "A repository was deleted",
            "registry.lifecycle.completed": "A run of a lifecycle policy has ended",
        },
    ),
    "storage.*": (
        "Buckets",
        {
            "storage.object.created": "An object was stored",
            "storage.object.deleted": "An object was deleted",
            "storage.bucket.created": "A bucket was created",
            "storage.bucket.deleted": "A bucket was deleted",
        },
    ),
    "certificate.*": (
        "Certificates",
        {
            "certificate.certificate.issued": "A certificate was issued",
            "certificate.certificate.renewed": "A certificate was renewed",
            "certificate.renewal.failed": "A certificate could not be renewed",
            "certificate.certificate.failed": "A certificate could not be issued",
            "certificate.certificate.expiring": "An uploaded certificate ends soon",
            "certificate.certificate.expired": "A certificate has expired",
            "certificate.certificate.revoked": "A certificate was revoked",
            "certificate.key.exported": "A private key was exported",
        },
    ),
    "queue.*": (
        "Queues",
        {
            "queue.queue.created": "A queue was created",
            "queue.queue.purged": "A queue was purged",
            "queue.queue.deleted": "A queue was deleted",
        },
    ),
    "email.*": (
        "Email",
        {
            "email.suppression.created": "A suppression was created",
            "email.suppression.updated": "A suppression was updated",
            "email.suppression.deleted": "A suppression was deleted",
        },
    ),
    "notifications.*": (
        "Topics",
        {
            "notifications.topic.created": "A topic was created",
            "notifications.topic.deleted": "A topic was deleted",
            "notifications.subscription.created": "A subscription was created",
            "notifications.subscription.confirmed": "A subscription was confirmed",
            "notifications.subscription.deleted": "A subscription was deleted",
        },
    ),
    "kms.*": (
        "Keys",
        {
            "kms.key.created": "A key was created",
            "kms.key.rotated": "A key was rotated",
            "kms.key.disabled": "A key was disabled",
            "kms.key.enabled": "A key was enabled",
            "kms.key.deletion_scheduled": "The deletion of a key was scheduled",
            "kms.key.deletion_cancelled": "The deletion of a key was cancelled",
            "kms.key.deleted": "A key was deleted",
        },
    ),
}
"""The event types that a rule can name, with descriptions, below the type that means all of one
service."""
_DESCRIPTIONS: Final = {
    **{every: f"{title}: everything" for every, (title, _) in FAMILIES.items()},
    **{each: words for _, types in FAMILIES.values() for each, words in types.items()},
}


@get(_PATH)
async def list_rules(page: InjectedPage) -> PageResponse:
    """Show the rules, the oldest first."""
    return await _page(page)


@post(_PATH)
async def create_rule(page: InjectedPage) -> PageResponse:
    """Create a rule from a form."""
    form = page.form
    body = {
        "topic": _topic(page, form.get("topic", "").strip()),
        "event_types": chosen_types(form),
        "repository_prefix": form.get("repository_prefix", "").strip(),
    }
    if not body["event_types"]:
        return await _page(page, 400, "Choose the events to send to the topic.")
    try:
        await page.api.post(_API, body)
    except Refused as error:
        if error.status not in _INLINE:
            raise
        return await _page(page, error.status, error.sentence)
    return page.go(_PATH, "rule-created")


@post(f"{_PATH}/{{rule:str}}/delete")
async def delete_rule(page: InjectedPage) -> PageResponse:
    """Delete a rule."""
    await page.api.change("DELETE", f"{_API}/{page.parameters['rule']}")
    return page.go(_PATH, "rule-deleted")


def chosen_types(form: Mapping[str, str]) -> list[str]:
    """Return the event types whose boxes are checked; of a service, only all if that one is."""
    return [
        each
        for every, (_, types) in FAMILIES.items()
        for each in ([every] if every in form else [each for each in types if each in form])
    ]


def _topic(page: PageRequest, written: str) -> str:
    """Return the CRN of a topic that is given by CRN or by name."""
    acting = page.session.acting
    if written.startswith("crn:") or acting is None:
        return written
    region = page.console.settings.region
    return f"crn:notifications:{region}:{acting.account_id}:topic/{written}"


async def _page(page: PageRequest, status: int = 200, complaint: str = "") -> PageResponse:
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    page.asks_about(*(rule["crn"] for rule in found["event_rules"]))
    return page.show(
        "event_rules.html",
        status,
        rules=found["event_rules"],
        meta=found["meta"],
        families=FAMILIES,
        descriptions=_DESCRIPTIONS,
        complaint=complaint,
    )


HANDLERS: Final = (list_rules, create_rule, delete_rule)
