"""Pages about access, in a browser of `console_shop`: forms, their answers, and secrets in them."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx

from tests.integration.console_shop import Shop


async def see(shop: Shop, path: str, status: int = 200) -> str:
    """Return a page of the console."""
    answer = await shop.browser.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


async def send(shop: Shop, path: str, /, **fields: str) -> httpx.Response:
    """Send a form of the session."""
    return await shop.browser.post(path, data={"csrf": "csrf", **fields})


async def told(shop: Shop, path: str, /, **fields: str) -> str:
    """Send a form that is accepted, and return the page to which it leads."""
    sent = await send(shop, path, **fields)
    assert sent.status_code == 303, sent.text
    return (await shop.browser.get(sent.headers["location"])).text


async def refusal(shop: Shop, path: str, status: int, /, **fields: str) -> str:
    """Send a form that is refused, and return what the page complains of."""
    sent = await send(shop, path, **fields)
    assert sent.status_code == status, sent.text
    found = re.search(r'role="alert" id="refusal">([^<]*)</p>', sent.text)
    assert found, sent.text
    return html.unescape(found[1])


def hidden(page: str, name: str) -> str:
    """Return the value of the first hidden field of a name."""
    found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)">', page)
    assert found, page
    return html.unescape(found[1])


async def read(shop: Shop, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of `/v1` at a path."""
    answer = await shop.served.ask("GET", path, token=shop.served.acme.program_token)
    assert answer.status_code == 200, answer.text
    return answer.json()


def check_secret(answer: httpx.Response, secret: str) -> None:
    """Check that a page shows a secret, stores it nowhere, and names it in no header."""
    assert answer.status_code == 200, answer.text
    assert secret in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert not any(secret in value for value in answer.headers.values())
