"""A rule for `untagged` without a condition."""

from __future__ import annotations

from tests.integration.lifecycle_world import LifecycleWorld, pin, play


def test_untagged_alone_takes_every_untagged_image_that_nothing_protects(
    database_url: str,
) -> None:
    """Part 1, rule 4; pinned ones, children, referrers of what stays and young ones stay."""
    rule = {"priority": 1, "selector": "untagged"}

    async def scenario(world: LifecycleWorld) -> None:
        push = world.world.push_image
        tagged = await push("1", "v1")
        loose = await push("22")
        signature = await push("333", subject=tagged, artifactType="application/x-signature")
        of_loose = await push("4444", subject=loose, artifactType="application/x-signature")
        pinned = await push("55555")
        await pin(world, pinned)
        assert await world.previewed(rule) == {}
        await world.pass_days(1 / 23)
        young = await push("666666")
        taken = {loose["digest"]: 1, of_loose["digest"]: 1}
        assert await world.previewed(rule) == taken
        run = await world.run(rule)
        assert (run["status"], run["expired"]) == ("succeeded", 2)
        left = {each["digest"] for each in (await world.world.get("/images"))["images"]}
        assert left == {each["digest"] for each in (tagged, signature, pinned, young)}

    play(database_url, scenario)
