"""How the pages of a list of the console are turned."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from registry.console.addresses import page_links


def walked(pages: int) -> list[dict[str, str]]:
    """Return the queries of the pages that the link to the next one leads to."""
    queries: list[dict[str, str]] = [{}]
    for number in range(1, pages):
        after = page_links(queries[-1], {"has_more": True, "marker": f"m{number}"}).after
        assert after
        queries.append(dict(parse_qsl(after)))
    return queries


def test_each_page_leads_back_to_the_one_before() -> None:
    last: dict[str, Any] = {"has_more": False}
    queries = walked(5)
    assert page_links(queries[0], last) == (None, None)
    for query, earlier in zip(queries[1:], queries, strict=False):
        before = page_links(query, last).before
        assert before is not None
        assert dict(parse_qsl(before)) == earlier


def test_an_address_keeps_so_many_pages_and_no_more() -> None:
    queries = walked(60)
    assert max(len(str(query)) for query in queries) < 200
    seen, query = 0, queries[-1]
    while (before := page_links(query, {"has_more": False}).before) is not None:
        query, seen = dict(parse_qsl(before)), seen + 1
    assert seen == 20
    assert query["marker"] == "m39", "the page before it is not known any more"


def test_a_marker_without_a_way_there_leads_nowhere_back() -> None:
    assert page_links({"marker": "m"}, {"has_more": False}).before is None
    on = dict(parse_qsl(page_links({"marker": "m"}, {"has_more": True, "marker": "n"}).after or ""))
    assert dict(parse_qsl(page_links(on, {"has_more": False}).before or "")) == {"marker": "m"}
