"""The selection of a lifecycle policy among images as the oracle has them."""

from __future__ import annotations

from collections.abc import Sequence

from cloudcore.web.strict_json import convert
from registry.services.lifecycle.rules import CompiledPolicy, LifecycleRule, check_rules, policy_of
from registry.services.lifecycle.selection import Image, Selection, select
from tests.property import lifecycle_oracle as oracle
from tests.property.lifecycle_oracle import Rule
from tests.property.lifecycle_worlds import NOW


def compiled(rules: Sequence[Rule]) -> CompiledPolicy:
    """Return the policy of these rules."""
    return policy_of(check_rules(convert(list(rules), list[LifecycleRule])))


def selected(images: Sequence[oracle.Image], policy: CompiledPolicy, now: int = NOW) -> Selection:
    """Select among images that know nothing of rules, each rule matched as the registry does."""
    names = {image.name for image in images}
    looked_at = []
    for image in images:
        rules = policy.of_any if image.tags else policy.of_untagged
        for tag, _ in image.tags:
            rules |= policy.of_tag(tag)
        looked_at.append(
            Image(
                image.name,
                rules,
                image.pushed_at,
                image.arrived_at,
                image.renewed_at,
                image.last_pulled_at,
                subject=image.subject if image.subject in names else None,
                is_pinned=image.is_pinned,
            )
        )
    return select(policy, looked_at, {image.name: image.children for image in images}, now)
