"""Topics and their subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from litestar import post

from cloudcore.notifications import topic
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import NO_REFUSAL, refusal_of
from registry.console.nouns.handlers import api_of, one_page, path_of, show_list
from registry.console.nouns.noun_pages import Input, RecordJson, read_inputs
from registry.console.nouns.resources import deletion, noun_of
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_SUBSCRIBING: Final = (
    Input(
        "protocol",
        "Protocol",
        "choice",
        is_required=True,
        choices=("https", "http", "email", "queue"),
    ),
    Input(
        "endpoint",
        "Endpoint",
        "code",
        "A URL that begins with the protocol, an address, or a queue. Its owner confirms it; a"
        " queue needs no confirmation. “entrepot subscriptions secret” shows what signs the"
        " deliveries to a webhook.",
        longest=2048,
        is_required=True,
    ),
)
_CONFIRMING: Final = (
    Input(
        "token",
        "Token or link",
        "code",
        "As your endpoint was sent it: “token” or “confirmation_url” of what a webhook got, or the"
        " link in a mail.",
        longest=2048,
        is_required=True,
    ),
)


async def _read_subscriptions(page: PageRequest, _topic: RecordJson) -> Mapping[str, Any]:
    """Read a page of the subscriptions; the values are None if the role may not list them."""
    listed = page.api.get(f"{api_of(page, TOPIC)}/subscriptions", marker=page.marker, limit=50)
    found = await unless_refused(listed)
    return {"subscriptions": found and found["subscriptions"], "meta": found and found["meta"]}


TOPIC: Final = replace(
    noun_of(
        topic.TOPIC,
        "What is published to a topic is sent to its subscriptions. Event rules publish what"
        " happens in repositories.",
    ),
    created="The topic was created. Say below who is told.",
    methods=(
        deletion(
            "topic",
            "notifications:DeleteTopic",
            "Its subscriptions go with it. Events that rules still send to it wait for 30 days for"
            " a topic of its name.",
            "with its subscriptions",
        ),
    ),
    parts="noun_topic.html",
    more=_read_subscriptions,
    shows={
        "subscribing": _SUBSCRIBING,
        "panel_fields": [each.field for each in _SUBSCRIBING],
        "confirming": _CONFIRMING,
        "unconfirmed": NO_REFUSAL,
    },
)
_TOPIC: Final = one_page(TOPIC)
_ONE: Final = "/subscriptions/{subscription:str}"
_ONE_API: Final = f"{TOPIC.api}/{{topic}}/subscriptions/{{subscription}}"


@_TOPIC.form("/subscriptions")
async def subscribe(page: InjectedPage) -> PageResponse:
    """Subscribe an endpoint."""
    body = read_inputs(_SUBSCRIBING, page.form)
    await page.api.post(f"{api_of(page, TOPIC)}/subscriptions", body, once=page.once)
    words = "It is subscribed. Unless it is a queue, its owner must confirm it."
    return page.go(path_of(page, TOPIC), words)


@post(f"{TOPIC.path_of_one}{_ONE}/delete")
async def unsubscribe(page: InjectedPage) -> PageResponse:
    """Delete a subscription."""
    await page.api.change("DELETE", page.fill(_ONE_API))
    return page.go(path_of(page, TOPIC), "The subscription was deleted.")


@_TOPIC.form(f"{_ONE}/resend-confirmation")
async def resend_confirmation(page: InjectedPage) -> PageResponse:
    """Ask the endpoint again to confirm."""
    await page.api.post(page.fill(f"{_ONE_API}/resend-confirmation"))
    return page.go(path_of(page, TOPIC), "The endpoint is asked again to confirm.")


@post(f"{TOPIC.path}/confirm")
async def confirm_subscription(page: InjectedPage) -> PageResponse:
    """Confirm a subscription with the token, or the link, that its endpoint was sent."""
    body = {"token": page.form.get("token", "")}
    try:
        await page.client.change("POST", "/v1/subscription-confirmations", body)
    except Refused as error:
        wrong = refusal_of(error)
        shown = await show_list(page, TOPIC, unconfirmed=wrong._replace(field="token"))
        shown.status_code = wrong.status
        return shown
    return page.go(
        TOPIC.path, "The subscription is confirmed: its endpoint gets what is published."
    )
