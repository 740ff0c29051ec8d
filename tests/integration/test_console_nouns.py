"""The pages that follow from the description of a noun: list, one, forms and question."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import pytest

from cloudcore.resources.resource import Record, Resource
from registry.composition.families import FAMILIES
from registry.console.menu import nouns_of
from registry.console.nouns.resources import noun_of
from tests import described
from tests.integration.console_access import hidden, refusal, see, send, told
from tests.integration.console_shop import Shop

SUPPRESSIONS = "/console/services/suppressions"
QUEUES = "/console/services/queues"
_ROW = re.compile(rf'<th scope="row"><a href="{SUPPRESSIONS}/([^"]*)">([^<]*)</a>')


async def rows(shop: Shop, query: str = "") -> list[str]:
    """Return what a list of suppressions shows, in its order."""
    return [name for _, name in _ROW.findall(await see(shop, f"{SUPPRESSIONS}{query}"))]


async def test_a_noun_is_made_found_changed_and_deleted_by_its_description_alone(
    shop: Shop,
) -> None:
    empty = await see(shop, SUPPRESSIONS)
    assert "New suppression" in empty
    for address in ("cy@example.com", "ada@example.com", "bo@example.com"):
        once = hidden(await see(shop, SUPPRESSIONS), "once")
        fields = {"address": address, "expires_at": "2999-01-02T03:04", "once": once}
        made = await told(shop, SUPPRESSIONS, **fields, description="Of <web>.")
        assert "The suppression was created." in made
        assert f"<h1>{address}</h1>" in made
    assert "Of &lt;web&gt;." in made
    wrong = await refusal(shop, SUPPRESSIONS, 400, address="nobody")
    assert wrong.startswith("Address: ")
    shown = await rows(shop)
    assert shown[-3:] == ["cy@example.com", "ada@example.com", "bo@example.com"]
    assert (await rows(shop, "?sort=address"))[-3:] == sorted(shown)[-3:]
    assert await rows(shop, "?sort=-address") == sorted(shown, reverse=True)
    assert await rows(shop, "?address=Ada@example.com") == ["ada@example.com"]
    assert await rows(shop, "?reason=unsubscribe") == []
    refused = await shop.browser.get(f"{SUPPRESSIONS}?address=nobody")
    assert (refused.status_code, 'aria-describedby="wrong"' in refused.text) == (400, True)

    found = {name: key for key, name in _ROW.findall(await see(shop, SUPPRESSIONS))}
    path = f"{SUPPRESSIONS}/{found['ada@example.com']}"
    page = await see(shop, path)
    assert 'value="2999-01-02T03:04"' in page
    assert "crn:email:local:" in page
    changed = await told(shop, path, description="", expires_at="")
    assert "The suppression was changed." in changed
    record = (
        await shop.served.ask(
            "GET",
            f"/v1/suppressions/{found['ada@example.com']}",
            token=shop.served.acme.program_token,
        )
    ).json()["suppression"]
    assert record["description"] == ""
    assert "expires_at" not in record
    past = await refusal(shop, path, 400, description="kept", expires_at="2001-01-01T00:00")
    assert "past" in past
    refused = await send(shop, path, description="kept", expires_at="2001-01-01T00:00")
    assert 'value="kept"' in refused.text
    assert re.search(r'id="expires_at"[^>]* aria-describedby="refusal', refused.text)
    asked = (await send(shop, f"{path}/delete")).text
    assert "Delete ada@example.com?" in asked
    assert "was deleted" in await told(shop, f"{path}/delete", confirmed="yes")
    assert "ada@example.com" not in await rows(shop)


@pytest.mark.parametrize(
    "kind",
    [each for each in described.RESOURCES if "create" in each.methods],
    ids=lambda kind: kind.one,
)
async def test_each_kind_is_created_by_its_form_and_listed(
    shop: Shop, kind: Resource[Record]
) -> None:
    (noun,) = [each for each in nouns_of(FAMILIES) if each.one == kind.one]
    sample = kind.sampled(described.NEW)
    fields = {
        name: "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in sample.items()
    }
    made = await told(shop, noun.path, **fields)
    name = html.escape(str(sample[kind.label]))
    assert f"<h1>{name}</h1>" in made
    # Other tests may have made more than a page of the kind.
    only = urlencode({kind.label: sample[kind.label]})
    assert f">{name}</a>" in await see(shop, f"{noun.path}?{only}")


async def test_a_list_is_turned_forth_and_back(shop: Shop) -> None:
    token = shop.served.acme.program_token
    for number in range(120):
        await shop.served.make("/v1/queues", {"name": f"q{number:03}"}, token=token)
    row = re.compile(rf'href="{QUEUES}/[^"]*">(q\d+)<')
    pages, path = [], f"{QUEUES}?sort=-name"
    while True:
        text = await see(shop, path)
        pages.append((path, row.findall(text)))
        following = re.search(r'rel="next" href="([^"]*)"', text)
        if following is None:
            break
        path = html.unescape(following[1])
    assert sorted(name for _, names in pages for name in names) == [
        f"q{number:03}" for number in range(120)
    ]
    assert len(pages) == 3
    assert all(names == sorted(names, reverse=True) for _, names in pages), "of the page, and kept"
    for _, names in reversed(pages[:-1]):
        previous = re.search(r'rel="prev" href="([^"]*)"', text)
        assert previous, text
        text = await see(shop, html.unescape(previous[1]))
        assert row.findall(text) == names
    assert 'rel="prev"' not in text
    assert "Order on this page" in text


async def test_all_settings_of_a_queue_are_in_its_forms(shop: Shop) -> None:
    made = await told(shop, QUEUES, name="set", retention_seconds="3600", tags="a=b\r\nc=d=e")
    assert "1 hour" in made
    path = re.search(rf'action="({QUEUES}/[^"/]*)"', made)
    assert path
    assert "a=b\nc=d=e" in made
    wrong = await refusal(shop, path[1], 400, retention_seconds="soon")
    assert wrong == "Retention: a whole number."
    assert await refusal(shop, path[1], 400, tags="a") == "Tags: each line is KEY=VALUE."
    await refusal(shop, path[1], 400, retention_seconds="1")
    changed = await told(shop, path[1], description="New.", lease_seconds="60", tags="")
    assert "New." in changed
    assert "a=b" not in changed


async def test_what_a_role_may_not_do_is_not_offered(shop: Shop) -> None:
    queue = await shop.served.make(
        "/v1/queues", {"name": "seen"}, token=shop.served.acme.program_token
    )
    path = f"{QUEUES}/{queue['id']}"
    may = ("queue:ListQueues", "queue:GetQueue", "queue:UpdateQueue")
    async with shop.browser_that_may(*may) as browser:
        shown = (await browser.get(path)).text
        assert "<h1>seen</h1>" in shown
        assert re.findall(rf'action="({path}[^"]*)"', shown) == [path], "only its change"
        listed = (await browser.get(QUEUES)).text
        assert f'method="post" action="{QUEUES}"' not in listed
        assert SUPPRESSIONS not in listed


async def test_topics_are_found_by_name(shop: Shop) -> None:
    topics = "/console/services/topics"
    for name in ("news", "alarms"):
        once = hidden(await see(shop, topics), "once")
        assert "The topic was created." in await told(shop, topics, name=name, once=once)
    found = await see(shop, f"{topics}?name=news")
    assert ">news</a>" in found
    assert ">alarms</a>" not in found


def test_what_goes_wrong_is_shown_beside_the_details_and_not_among_them() -> None:
    """A list of faults is no value of one line, which would break the page."""
    for each in described.RESOURCES:
        assert "faults" not in [column.field for column in noun_of(each).details], each.one
