"""The pages that recipients see; plain HTML without scripts."""

from __future__ import annotations

from html import escape
from typing import Final

from cloudcore.notifications.envelope import CONFIRM_PATH, UNSUBSCRIBE_PATH

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:1rem/1.5 system-ui;max-width:36rem;margin:4rem auto;padding:0 1rem}}
button{{font:inherit;padding:.4rem 1rem}}</style></head>
<body><h1>{title}</h1><p>{words}</p>{rest}</body></html>
"""
_FORM: Final = (
    '<form method="post" action="{action}"><input type="hidden" name="token" value="{token}">'
    "<button>{label}</button></form>"
)


def confirm_page(token: str) -> str:
    """Return the page that asks whether to confirm."""
    form = _FORM.format(action=CONFIRM_PATH, token=escape(token), label="Confirm")
    words = "You were asked to confirm a subscription. If you do not expect this, do nothing."
    return _PAGE.format(title="Confirm the subscription?", words=words, rest=form)


def confirmed_page(endpoint: str, topic_name: str) -> str:
    """Return the page that says what was confirmed."""
    words = f"{escape(endpoint)} is sent what is published to {escape(topic_name)} from now on."
    return _PAGE.format(title="Confirmed", words=words, rest="")


def unsubscribe_page(token: str) -> str:
    """Return the page that asks whether to end a subscription."""
    form = _FORM.format(action=UNSUBSCRIBE_PATH, token=escape(token), label="Unsubscribe")
    words = "Nothing more will be sent to you for this subscription."
    return _PAGE.format(title="Unsubscribe?", words=words, rest=form)


def unsubscribed_page() -> str:
    """Return the page that says that a subscription has ended."""
    return _PAGE.format(title="Unsubscribed", words="Nothing more will be sent to you.", rest="")


def refused_page() -> str:
    """Return the page for a token that is not valid."""
    words = "The link is not valid: it may have expired or been used, or there is a newer one."
    return _PAGE.format(title="This link does nothing", words=words, rest="")
