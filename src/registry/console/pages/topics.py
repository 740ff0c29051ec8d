"""Topics: who is told what is published to them."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.creation import create_named
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import TOPICS

_API: Final = "/v1/topics"
_ONE: Final = f"{TOPICS}/{{topic:str}}"
_SUBSCRIPTION: Final = f"{_ONE}/subscriptions/{{subscription:str}}"
_PAGE: Final = 50


@get(TOPICS)
async def list_topics(page: InjectedPage) -> PageResponse:
    """List the topics, the oldest first."""
    return await _list(page)


@post(TOPICS)
async def create_topic(page: InjectedPage) -> PageResponse:
    """Create a topic."""
    return await create_named(page, _API, "topic", TOPICS, "topic-created", _list)


@get(_ONE)
async def show_topic(page: InjectedPage) -> PageResponse:
    """Show a topic, with its subscriptions if the role may list them."""
    return await _show(page)


@post(f"{_ONE}/delete")
async def delete_topic(page: InjectedPage) -> PageResponse:
    """Delete a topic."""
    await page.api.change("DELETE", _api(page))
    return page.go(TOPICS, "topic-deleted")


@post(f"{_ONE}/subscriptions")
async def subscribe(page: InjectedPage) -> PageResponse:
    """Subscribe an endpoint."""
    form = page.form
    body = {
        "protocol": form.get("protocol", ""),
        "endpoint": form.get("endpoint", "").strip(),
    }
    try:
        await page.api.post(f"{_api(page)}/subscriptions", body, once=form.get("once", ""))
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_path(page), "subscribed")


@post(f"{_SUBSCRIPTION}/delete")
async def unsubscribe(page: InjectedPage) -> PageResponse:
    """Delete a subscription."""
    await page.api.change("DELETE", _subscription(page))
    return page.go(_path(page), "unsubscribed")


@post(f"{_SUBSCRIPTION}/resend-confirmation")
async def resend_confirmation(page: InjectedPage) -> PageResponse:
    """Ask the endpoint again to confirm."""
    try:
        await page.api.post(f"{_subscription(page)}/resend-confirmation")
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_path(page), "confirmation-sent")


@post(f"{TOPICS}/confirm")
async def confirm_subscription(page: InjectedPage) -> PageResponse:
    """Confirm a subscription by the token, or the link, that its endpoint was sent."""
    body = {"token": page.form.get("token", "")}
    try:
        await page.client.change("POST", "/v1/subscription-confirmations", body)
    except Refused as error:
        return await _list(page, unconfirmed=complaint_of(error))
    return page.go(TOPICS, "subscription-confirmed")


async def _list(
    page: PageRequest,
    complaint: Complaint = NO_COMPLAINT,
    unconfirmed: Complaint = NO_COMPLAINT,
) -> PageResponse:
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    return page.show(
        "topics.html",
        max(complaint.status, unconfirmed.status),
        topics=found["topics"],
        meta=found["meta"],
        complaint=complaint,
        unconfirmed=unconfirmed,
    )


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    topic = (await page.api.get(_api(page)))["topic"]
    subscriptions = page.api.get(
        f"{_api(page)}/subscriptions", marker=page.query.get("marker"), limit=_PAGE
    )
    found = await unless_refused(subscriptions)
    page.asks_about(topic["crn"])
    return page.show(
        "topic.html",
        complaint.status,
        topic=topic,
        subscriptions=found and found["subscriptions"],
        meta=found and found["meta"],
        base=_path(page),
        complaint=complaint,
    )


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters['topic']}"


def _subscription(page: PageRequest) -> str:
    return f"{_api(page)}/subscriptions/{page.parameters['subscription']}"


def _path(page: PageRequest) -> str:
    return f"{TOPICS}/{page.parameters['topic']}"


HANDLERS: Final = (
    list_topics,
    create_topic,
    show_topic,
    delete_topic,
    subscribe,
    unsubscribe,
    resend_confirmation,
    confirm_subscription,
)
