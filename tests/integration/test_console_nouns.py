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
from tests.integration.console_access import see, told
from tests.integration.console_shop import Shop

QUEUES = "/console/services/queues"


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


def test_what_goes_wrong_is_shown_beside_the_details_and_not_among_them() -> None:
    """A list of faults is no value of one line, which would break the page."""
    for each in described.RESOURCES:
        assert "faults" not in [column.field for column in noun_of(each).details], each.one
