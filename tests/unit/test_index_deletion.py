"""Which manifests go with an index: the rule alone, over made-up trees."""

from __future__ import annotations

from registry.metadata.images.relations import TreeMember
from registry.services.images.index_deletion import Division, KeptReason, TreeNeed, divide


def member(name: str, *, tagged: bool = False, pinned: bool = False) -> TreeMember:
    return TreeMember(name, f"sha256:{name}", name in ("index", "nested"), tagged, pinned)


def lists(by: str, *children: str) -> list[TreeNeed]:
    return [TreeNeed(by, child, "listed") for child in children]


def told(division: Division) -> tuple[set[str], dict[str, KeptReason]]:
    return {each.id for each in division.deleted}, {each.id: why for each, why in division.kept}


NAMES = ("index", "nested", "leaf", "image", "signature")
INSIDE = [
    *lists("index", "nested", "image", "signature"),
    *lists("nested", "leaf"),
    TreeNeed("signature", "image", "attached"),
]


def test_what_nothing_else_needs_goes_with_its_index() -> None:
    division = divide("index", [member(name) for name in NAMES], INSIDE)
    assert told(division) == (set(NAMES), {})
    order = [each.id for each in division.deleted]
    assert order[:2] == ["index", "nested"]  # indexes, each after all that list it, then images


def test_what_has_a_tag_or_a_pin_stays_with_what_it_lists() -> None:
    members = [member(name, pinned=name == "nested") for name in NAMES]
    assert told(divide("index", members, INSIDE)) == (
        {"index", "image", "signature"},
        {"nested": "pinned", "leaf": "listed"},
    )
    members = [member(name, tagged=name == "nested", pinned=True) for name in NAMES]
    assert told(divide("index", members, INSIDE))[1]["nested"] == "tagged"


def test_an_image_stays_with_its_signature() -> None:
    members = [member(name, pinned=name == "signature") for name in NAMES]
    assert told(divide("index", members, INSIDE)) == (
        {"index", "nested", "leaf"},
        {"signature": "pinned", "image": "attached"},
    )


def test_what_something_outside_needs_stays() -> None:
    needs = [*INSIDE, *lists("other", "leaf"), TreeNeed("another", "image", "attached")]
    members = [member(name) for name in NAMES]
    assert told(divide("index", members, needs)) == (
        {"index", "nested", "signature"},
        {"leaf": "listed", "image": "attached"},
    )


def test_the_index_goes_whatever_holds_it() -> None:
    needs = [*INSIDE, *lists("other", "index"), TreeNeed("another", "index", "attached")]
    members = [member(name, tagged=name == "index", pinned=name == "index") for name in NAMES]
    assert told(divide("index", members, needs)) == (set(NAMES), {})
