"""A rule for `untagged` without a condition."""

from __future__ import annotations

from tests.databases import on_both_databases
from tests.integration.lifecycle_world import LifecycleWorld, pin


@on_both_databases
async def test_untagged_alone_takes_every_untagged_image_that_nothing_protects(
    lifecycle: LifecycleWorld,
) -> None:
    """Part 1, rule 4; pinned ones, children, referrers of what stays and young ones stay."""
    rule = {"priority": 1, "selector": "untagged"}

    push = lifecycle.world.push_image
    tagged = await push("1", "v1")
    loose = await push("22")
    signature = await push("333", subject=tagged, artifactType="application/x-signature")
    of_loose = await push("4444", subject=loose, artifactType="application/x-signature")
    pinned = await push("55555")
    await pin(lifecycle, pinned)
    assert await lifecycle.previewed(rule) == {}
    await lifecycle.pass_days(1 / 23)
    young = await push("666666")
    taken = {loose["digest"]: 1, of_loose["digest"]: 1}
    assert await lifecycle.previewed(rule) == taken
    run = await lifecycle.run(rule)
    assert (run["status"], run["expired"]) == ("succeeded", 2)
    left = {each["digest"] for each in (await lifecycle.world.get("/images"))["images"]}
    assert left == {each["digest"] for each in (tagged, signature, pinned, young)}
