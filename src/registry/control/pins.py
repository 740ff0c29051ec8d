"""``/v1/repositories/{id}/images/{digest}/pins``: pins, which keep images from expiring."""

from __future__ import annotations

from typing import Final

import msgspec
from litestar.params import FromPath, JSONBody

from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ActingSource
from cloudcore.web.context import Reply
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, Timestamp, moment_of
from registry.control.visible_repositories import PATH, authorized_visible_repository, change_of
from registry.services.images import pins
from registry.services.images.pins import Pinned

_PINS: Final = f"{PATH}/images/{{digest:str}}/pins"
_PIN: Final = f"{_PINS}/{{name:str}}"


class PutPin(RequestBody):
    """How long an image is pinned."""

    expires_at: Timestamp | None = None
    """A moment in the future; null: until the pin is deleted."""


class PinAnswer(ResponseBody):
    """A pin."""

    name: str
    digest: str
    """sha256 digest of the pinned image."""
    expires_at: RFC3339 | None
    created_by: str
    """CRN of the principal that created the pin."""
    created_by_source: ActingSource | None
    """The person or service account behind that principal; null if unknown or none."""
    created_at: RFC3339


def _answer(pinned: Pinned) -> PinAnswer:
    return answer_of(PinAnswer, pinned.pin, digest=pinned.digest)


_PIN_ANSWERS: Final = RecordAnswers(PinAnswer, "pin", _answer)


@_PIN_ANSWERS.lists(_PINS, "registry:DescribeImages")
async def list_pins(
    repository_id: FromPath[str], digest: FromPath[str], ctx: Context
) -> ResponseBody:
    """List the pins of an image that have not expired, by name."""
    found = await authorized_visible_repository(ctx, repository_id)
    pager = ctx.pager(ctx.query(PageQuery))
    (after,) = pager.position or ("",)
    held = await ctx.database.read(pins.list_pins, found, digest, ctx.clock())
    rows = [each for each in held if each.pin.name > after]
    page, meta = pager.cut(rows, len(held), lambda each: (each.pin.name,))
    return _PIN_ANSWERS.many([_answer(each) for each in page], meta)


@_PIN_ANSWERS.puts(_PIN, "registry:PutImagePin", statuses=(201, 409))
async def put_pin(
    repository_id: FromPath[str],
    digest: FromPath[str],
    name: FromPath[str],
    data: JSONBody[PutPin],
    ctx: Context,
) -> Reply[ResponseBody]:
    """Pin an image, or renew a pin; lifecycle policies never expire a pinned image."""
    found = await authorized_visible_repository(ctx, repository_id)
    change = change_of(ctx)
    expires_at = None if data.expires_at is None else moment_of(data.expires_at)
    pins.check_pin(name, expires_at, change.now)
    pinned = await ctx.database.write(pins.put_pin, found, digest, name, expires_at, change)
    body = msgspec.json.encode(_PIN_ANSWERS.one(pinned))
    return Reply(201 if pinned.is_new else 200, body)


@deletes(_PIN, "registry:DeleteImagePin")
async def delete_pin(
    repository_id: FromPath[str], digest: FromPath[str], name: FromPath[str], ctx: Context
) -> None:
    """Delete a pin; the image stays pinned while it has others."""
    found = await authorized_visible_repository(ctx, repository_id)
    await ctx.database.write(pins.delete_pin, found, digest, name, ctx.clock())
