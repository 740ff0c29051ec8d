"""``/v1/messages``: accept messages, and show their status.

As messages come by the thousand, the audit log records only those that are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

from litestar.params import FromPath, JSONBody
from msgspec import Meta, field

from cloudcore.email import templates
from cloudcore.email.messages import rows
from cloudcore.email.messages.bodies import MESSAGES, content_of, sealed_content, whole
from cloudcore.email.messages.mime import (
    Content,
    Mailbox,
    MessageHeading,
    check_headers,
    check_line,
    composed,
    mailbox,
)
from cloudcore.email.messages.submission import Draft, accept, check_recipients
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.resources import MESSAGE, MOST_RECIPIENTS, Template
from cloudcore.email.templates import MAX_SUBJECT, Rendered, render
from cloudcore.errors import Conflict, InvalidInput, invalid_field
from cloudcore.keyring import Keyring
from cloudcore.threads import DOCUMENTS
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody

USE_TEMPLATE: Final = "email:GetTemplate"
"""The action that a caller needs on a template to send a message from it."""
_Mailboxes = Annotated[list[str], Meta(max_length=MOST_RECIPIENTS)]


class SendMessage(RequestBody):
    """A message: a subject with HTML, text or both, or a template with its variables."""

    from_: str = field(name="from")
    """`ada@example.com` or `Ada Lovelace <ada@example.com>`, of a verified identity."""
    to: _Mailboxes = field(default_factory=list)
    """With `cc` and `bcc` 1 to 50."""
    cc: _Mailboxes = field(default_factory=list)
    bcc: _Mailboxes = field(default_factory=list)
    """Further recipients, which the message itself does not name."""
    subject: Annotated[str, Meta(min_length=1, max_length=MAX_SUBJECT)] | None = None
    html: Annotated[str, Meta(min_length=1)] | None = None
    text: Annotated[str, Meta(min_length=1)] | None = None
    template: str | None = None
    """Name, id or CRN of an email template, instead of subject, HTML and text."""
    variables: dict[str, Any] = field(default_factory=dict)
    """The variables of the template, by name; any values of JSON."""
    headers: dict[str, str] = field(default_factory=dict)
    """Further fields: `X-…`, and those of mailing lists, `List-…`. At most 20."""


@MESSAGES.answers.creates(
    MESSAGE.path, MESSAGE.action("create"), status=202, statuses=(429,), silent_limit=True
)
async def send_message(
    data: JSONBody[SendMessage], ctx: Context, needs: Needs[EmailNeeds]
) -> Reply[ResponseBody]:
    """Accept a message, which is then sent to each recipient separately.

    Recipients whose addresses are suppressed get nothing, and are recorded so; the others do. A
    request that is sent again with its `Idempotency-Key` sends nothing again. The operator limits
    how many messages a second an identity may send, by default 10; beyond that, it is 429.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    message_id, now = ctx.new_id(), ctx.clock()
    ctx.authorize(MESSAGE.crn(region, account_id, message_id))
    if needs.sending.sender is None:
        raise Conflict("this install sends no mail of accounts", reason="not_available")
    template = await _template(ctx, data, account_id, region)
    of = (message_id, account_id, region)
    drafted = partial(_drafted, ctx.keyring, data, template, of, now)
    draft, content = await DOCUMENTS.run(account_id, drafted)
    with needs.room.checking(account_id, now) as is_counted:
        return await ctx.commit(
            partial(accept, checks_room=is_counted),
            draft,
            needs.sending,
            now,
            wrap=lambda made: whole(made.message, made.recipients, content),
            location=lambda made: MESSAGES.location(made.message),
            details=lambda _: None,
        )


@MESSAGES.answers.gets(MESSAGE.path_of_one, MESSAGE.action("get"))
async def get_message(message_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a message, with the status of each recipient.

    The content is kept for seven days after the last delivery has ended, the rest for thirty.
    """
    found = await MESSAGES.authorized(ctx, message_id)
    of = (found.account_id, found.id)
    recipients = await ctx.database.read(rows.list_recipients, *of)
    sealed = await ctx.database.read(rows.find_content, *of)
    content = None
    if sealed is not None:
        content = await DOCUMENTS.run(found.account_id, content_of, ctx.keyring, found.id, sealed)
    return whole(found, recipients, content)


async def _template(
    ctx: RequestContext, data: SendMessage, account_id: str, region: str
) -> Template | None:
    """Return the template that a request names, or None if it names none.

    Raise `InvalidInput` if the request has a subject or body beside a template, or variables
    without a template.
    """
    if data.template is None:
        if data.variables:
            words = "variables: they are those of a template"
            raise InvalidInput(words, field="variables", reason="ambiguous")
        return None
    for name in ("subject", "html", "text"):
        if getattr(data, name) is not None:
            words = f"{name}: the template has it"
            raise InvalidInput(words, field=name, reason="ambiguous")
    right = ctx.right_to(USE_TEMPLATE)
    where = (account_id, region, "template", data.template)
    return await ctx.database.read(templates.ROWS.resolve, *where, right)


def _drafted(
    keyring: Keyring,
    data: SendMessage,
    template: Template | None,
    of: tuple[str, str, str],
    now: int,
) -> tuple[Draft, Content]:
    """Return (draft, content) of a request, with the template rendered and the content sealed.

    `of` is (message id, account id, region). The message is composed once, as a check. Raise
    `InvalidInput` if it cannot be rendered or composed.
    """
    sender = mailbox(data.from_, "from")
    to, cc, bcc = (_mailboxes(data, field) for field in ("to", "cc", "bcc"))
    check_headers(data.headers)
    said = _written(data) if template is None else render(template, data.variables)
    content = Content(said.html, said.text, data.headers, data.variables)
    draft = Draft(*of, sender, to, cc, bcc, said.subject, template, b"")
    check_recipients(draft)
    heading = MessageHeading(
        id=draft.id,
        sender=str(sender),
        to=[str(each) for each in to],
        cc=[str(each) for each in cc],
        subject=draft.subject,
        created_at=now,
    )
    composed(heading, content, {})
    return draft._replace(sealed=sealed_content(keyring, draft.id, content)), content


def _written(data: SendMessage) -> Rendered:
    if data.subject is None:
        raise invalid_field("subject", "needed, or a template", "missing")
    if data.html is None and data.text is None:
        raise invalid_field("text", "needed, or html or a template", "missing")
    check_line(data.subject, "subject")
    if not data.subject.strip():
        raise invalid_field("subject", "it is empty", "out_of_range")
    return Rendered(data.subject, data.html, data.text)


def _mailboxes(data: SendMessage, field: str) -> Sequence[Mailbox]:
    given: Sequence[str] = getattr(data, field)
    return [mailbox(each, f"{field}[{place}]") for place, each in enumerate(given)]
