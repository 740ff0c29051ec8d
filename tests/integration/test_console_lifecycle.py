"""The form of a lifecycle policy: what it shows, previews and runs is the same thing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from registry.console.pages.repositories.lifecycle import (
    SUGGESTED,
    are_same,
    row_of,
    rows_of,
    rule_of,
)
from tests.integration.console_access import hidden
from tests.integration.console_shop import Shop, open_shop

RULES: list[dict[str, Any]] = [
    {"priority": 1, "action": "keep", "selector": "tagged", "tag_prefixes": ["release-", "v"]},
    {"priority": 3, "selector": "tagged", "tag_patterns": ["pr-*-x"], "not_pulled_for_days": 9},
    {"priority": 5, "selector": "untagged", "description": "Parts of nothing."},
    {"priority": 9, "selector": "any", "keep_last": 50},
]


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("lifecycle") / "data") as shop:
        for tag in ("a", "b", "c"):
            await shop.image(tag, tag)
        await shop.age(days=3)
        yield shop


def fields_in(page: str) -> dict[str, str]:
    """Return the fields of the rows of a page, as a browser would send them."""
    found = dict(
        re.findall(r'<input id="[a-z]+-[0-9]+" name="([a-z]+-[0-9]+)" value="([^"]*)"', page)
    )
    for name, options in re.findall(r'(?s)<select id="[^"]*" name="([^"]*)">(.*?)</select>', page):
        chosen = re.search(r'value="([^"]*)" selected', options)
        found[name] = chosen[1] if chosen else ""
    return found


def test_rules_survive_their_row() -> None:
    assert [rule_of(row_of(rule)) for rule in RULES] == RULES
    assert [rule_of(row_of(rule)) for rule in SUGGESTED] == list(SUGGESTED)
    assert are_same(RULES, RULES[::-1])
    assert not are_same(RULES, RULES[1:])
    moved = [*RULES[:3], {**RULES[3], "keep_last": 51}]
    assert not are_same(RULES, moved)


def test_rows_without_a_rule_and_removed_ones_are_left_out() -> None:
    form = {"selector-1": "any", "selector-2": "", "selector-10": "untagged", "remove-1": "on"}
    assert [row.selector for row in rows_of(form)] == ["untagged"]


async def test_the_form_shows_the_saved_policy_rule_by_rule(shop: Shop) -> None:
    await shop.call("PUT", "/lifecycle-policy", {"rules": RULES})
    fields = fields_in(await shop.see("/lifecycle"))
    rows = rows_of(fields)
    assert are_same([rule_of(row) for row in rows], RULES)
    page = (await shop.send("/lifecycle/preview", **fields)).text
    assert "Preview of the saved policy" in page
    saved = await shop.told("/lifecycle", **fields)
    assert "The policy was saved." in saved
    kept = (await shop.call("GET", "/lifecycle-policy"))["lifecycle_policy"]["rules"]
    assert are_same(kept, RULES)


async def test_only_what_was_previewed_is_run(shop: Shop) -> None:
    await shop.call(
        "PUT", "/lifecycle-policy", {"rules": [{"priority": 1, "selector": "untagged"}]}
    )
    assert "Run the policy now" not in await shop.see("/lifecycle")
    other = {"priority-1": "1", "selector-1": "tagged", "condition-1": "keep_last", "number-1": "1"}
    page = (await shop.send("/lifecycle/preview", **other)).text
    assert "Preview of rules that are not saved" in page
    assert "<b>2</b> of 3 images would expire" in page
    assert "Run the policy now" not in page

    written = re.search(r'<input type="hidden" name="rules" value="([^"]*)">', page)
    assert written
    await shop.told("/lifecycle", rules=written[1].replace("&#34;", '"'))
    page = (await shop.send("/lifecycle/preview", **other)).text
    assert "Preview of the saved policy" in page
    revision = re.search(r'name="revision" value="([0-9]+)"', page)
    assert revision

    await shop.call(
        "PUT", "/lifecycle-policy", {"rules": [{"priority": 1, "selector": "untagged"}]}
    )
    refused = await shop.send("/lifecycle/run", revision=revision[1])
    assert refused.status_code == 409
    assert "preview it again" in refused.text
    assert (await shop.send("/lifecycle/run")).status_code == 400
    assert (await shop.call("GET", "/lifecycle-policy/runs"))["runs"] == []
    begun = await shop.told("/lifecycle/run", revision=str(int(revision[1]) + 1))
    assert "A run has begun." in begun


async def test_rules_that_were_saved_meanwhile_are_not_overwritten(shop: Shop) -> None:
    """Though the draft was previewed in between, on a page that shows the newer revision."""
    await shop.call("PUT", "/lifecycle-policy", {"rules": RULES})
    drawn = hidden(await shop.see("/lifecycle"), "revision")
    theirs = [{"priority": 7, "selector": "untagged"}]
    await shop.call("PUT", "/lifecycle-policy", {"rules": theirs})
    mine = json.dumps([{"priority": 9, "selector": "untagged"}])
    previewed = (await shop.send("/lifecycle/preview", rules=mine, revision=drawn)).text
    assert hidden(previewed, "revision") == drawn
    refused = await shop.send("/lifecycle", rules=mine, revision=drawn)
    assert refused.status_code == 409
    assert "This has changed since you opened the page" in refused.text
    assert "What is saved now" in refused.text
    kept = (await shop.call("GET", "/lifecycle-policy"))["lifecycle_policy"]["rules"]
    assert [each["priority"] for each in kept] == [7]
    await shop.told("/lifecycle", rules=mine, revision=hidden(refused.text, "revision"))
    kept = (await shop.call("GET", "/lifecycle-policy"))["lifecycle_policy"]["rules"]
    assert [each["priority"] for each in kept] == [9]


async def test_a_row_that_cannot_be_keeps_its_fields(shop: Shop) -> None:
    wrong = {"priority-1": "1", "selector-1": "tagged", "condition-1": "keep_last", "number-1": "x"}
    refused = await shop.send("/lifecycle/preview", **wrong)
    assert refused.status_code == 400
    assert "must be a whole number" in refused.text
    assert fields_in(refused.text).items() >= wrong.items()
    assert (await shop.send("/lifecycle", **{"selector-1": ""})).status_code == 400
    more = (await shop.send("/lifecycle/preview", add="rule", **wrong)).text
    assert more.count("A further rule") == 2
