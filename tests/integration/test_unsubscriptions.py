"""Recipients end the mail of an account by one click (RFC 8058), without signing in."""

from __future__ import annotations

from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.clock import uuid7
from cloudcore.email.suppressions import (
    PATH,
    Unsubscription,
    read_unsubscribe_token,
    unsubscribe_headers,
    unsubscribe_token,
)
from cloudcore.keyring import Keyring
from tests.databases import on_both_databases
from tests.integration.served_world import URL, Served

ONE_CLICK = b"List-Unsubscribe=One-Click"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ADDRESS = "Ada.Long-Name@mx.example.com"


def link_of(served: Served, *, of: str = "", message_id: str = "") -> Unsubscription:
    """Return who the link of a message to Ada unsubscribes from acme."""
    account_id = of or served.acme.account_id
    return Unsubscription(account_id, "local", message_id or uuid7(), ADDRESS)


def url_of(served: Served, link: Unsubscription) -> str:
    """Return the path and query that the header of a message names."""
    headers = unsubscribe_headers(served.keyring, served.email.url, link)
    assert headers["List-Unsubscribe-Post"] == ONE_CLICK.decode()
    name = headers["List-Unsubscribe"]
    assert name.startswith(f"<{URL}{PATH}?")
    assert name.endswith(">")
    assert len(name) < 900  # a header's line has at most 998 characters
    return name[1:-1].removeprefix(URL)


async def suppressed(served: Served) -> list[dict[str, object]]:
    """Return the suppressions of acme by unsubscription."""
    path, token = "/v1/suppressions?reason=unsubscribe", served.acme.program_token
    found: list[dict[str, object]] = (await served.ask("GET", path, token=token)).json()[
        "suppressions"
    ]
    return found


async def click(served: Served, url: str, body: bytes = ONE_CLICK) -> httpx.Response:
    """Post what a mail program posts: no credentials, a form."""
    return await served.ask("POST", url, body, headers=FORM)


@on_both_databases
async def test_one_click_suppresses_the_address_once_and_links_the_message(served: Served) -> None:
    link = link_of(served)
    for each in (link, link, link_of(served, of=uuid7())):  # the last is of an account that is gone
        answer = await click(served, url_of(served, each))
        kind = answer.headers["content-type"]
        assert (answer.status_code, kind) == (200, "text/html; charset=utf-8")
    (made,) = await suppressed(served)
    assert made["address"] == ADDRESS
    assert made["source_message"] == {
        "id": link.message_id,
        "crn": f"crn:email:local:{served.acme.account_id}:message/{link.message_id}",
    }
    path = "/v1/audit-events?action=email:Unsubscribe"
    answer = await served.ask("GET", path, token=served.acme.program_token)
    (event,) = answer.json()["events"]
    assert event["resources"] == [made["crn"]]
    assert event["details"] == {"suppression_id": made["id"], "message_id": link.message_id}
    assert not event.get("principal")


async def test_opening_the_link_changes_nothing_and_its_button_does(served: Served) -> None:
    link = link_of(served)
    url = url_of(served, link)
    for method in ("GET", "HEAD"):
        assert (await served.ask(method, url)).status_code == 200
    shown = (await served.ask("GET", url)).text
    assert await suppressed(served) == []
    token = unsubscribe_token(served.keyring, link)
    assert f'action="{PATH}"' in shown
    assert f'name="token" value="{token}"' in shown
    answer = await click(served, PATH, urlencode({"token": token}).encode())
    assert answer.status_code == 200
    assert len(await suppressed(served)) == 1


async def test_a_token_that_is_not_ours_does_nothing(served: Served) -> None:
    token = unsubscribe_token(served.keyring, link_of(served))
    strange = (
        unsubscribe_token(Keyring(bytes(32)), link_of(served)),
        f"{'A' if token[0] != 'A' else 'B'}{token[1:]}",
        *(token[:-4], token[20:], f"{token}AAAA", "", "é", "=", "%00"),
    )
    for each in strange:
        answer = await click(served, f"{PATH}?{urlencode({'token': each})}")
        assert answer.status_code == 400
    assert (await click(served, PATH, b"a=1&" * 2000)).status_code in (400, 413)
    assert await suppressed(served) == []


@pytest.mark.parametrize("region", ["local", "eu-1"])
@given(st.uuids().map(str), st.emails(), st.integers(0, 60), st.sampled_from("AZaz09-_"))
def test_a_token_names_who_unsubscribes_and_nobody_else_makes_one(
    region: str, account_id: str, address: str, at: int, letter: str
) -> None:
    keyring = Keyring(bytes(range(32)))
    link = Unsubscription(account_id, region, account_id, address)
    token = unsubscribe_token(keyring, link)
    assert read_unsubscribe_token(keyring, token) == link
    changed = f"{token[:at]}{letter}{token[at + 1 :]}"
    if changed != token:
        assert read_unsubscribe_token(keyring, changed) is None
