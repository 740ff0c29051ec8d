"""What is decided of the instances of a pool, whatever becomes of them: rolls take nothing."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from cloudcore.clock import MICROSECONDS
from cloudcore.compute import rollout
from cloudcore.compute.instance_pool import Instance, InstancePool
from cloudcore.resources.resource import Reference

START: Final = 1_800_000_000 * MICROSECONDS
BASE: Final[dict[str, Any]] = {
    "account_id": "a",
    "region": "local",
    "created_at": START,
    "updated_at": START,
}


def pool_of(size: int) -> InstancePool:
    return InstancePool(
        **BASE, id="pool", name="web", image="web:1", size=size, fetched=1, image_digest="1"
    )


class Run:
    """A pool whose instances become what a test draws."""

    def __init__(self, size: int) -> None:
        self.pool = pool_of(size)
        self.instances: list[Instance] = []
        self.now = START
        self.count = 0
        self.bad: set[str] = set()
        """Digests whose programs end."""

    def step(self) -> None:
        """Do what is decided; those that go are gone two steps later, and others become ready."""
        self.now += 10 * MICROSECONDS
        gone = self.now - 20 * MICROSECONDS
        self.instances = [
            each for each in self.instances if not each.is_leaving or (each.not_before or 0) > gone
        ]
        self.instances = [
            structs.replace(each, status="running", started_at=self.now)
            if each.status == "starting" and each.image_digest not in self.bad
            else each
            for each in self.instances
        ]
        decided = rollout.plan(self.pool, self.instances, self.now)
        going = {each.id for each in decided.stops}
        ready = sum(each.is_ready for each in self.instances)
        self.instances = [
            structs.replace(each, status="stopping", not_before=self.now)
            if each.id in going
            else each
            for each in self.instances
        ]
        left = sum(each.is_ready for each in self.instances)
        assert left >= min(ready, self.pool.size), "what is ready goes only for what is ready"
        version = self.pool.version
        assert version is not None
        for _ in range(decided.starts):
            self.count += 1
            self.instances.append(
                Instance(
                    **BASE,
                    id=f"{self.count:04}",
                    pool=Reference("pool"),
                    node="here",
                    image="web:1",
                    image_digest=version.image_digest,
                    version=version,
                    memory_mb=1,
                    cpu_millis=1,
                )
            )
        staying = [each for each in self.instances if not each.is_leaving]
        if decided.starts:
            assert len(staying) <= self.pool.size + 1
            if any(each.version != version for each in staying):
                assert len(self.instances) <= self.pool.size + 1, "with what goes"
        assert not (decided.starts and decided.stops)

    def settled(self) -> bool:
        return rollout.is_settled(self.pool, self.instances)


changes = st.one_of(
    st.tuples(st.just("size"), st.integers(0, 5)),
    st.tuples(st.just("image_digest"), st.sampled_from(["1", "2", "3"])),
    st.tuples(st.just("wait"), st.integers(1, 8)),
)


@settings(deadline=None)
@example(  # more than size + 1 while the only ready one is old
    size=2,
    drawn=[
        *(("image_digest", "2"), ("wait", 1), ("image_digest", "1"), ("wait", 1)),
        *(("size", 1), ("image_digest", "2"), ("wait", 1)),
    ],
    bad=frozenset({"2"}),
)
@given(
    size=st.integers(0, 5),
    drawn=st.lists(changes, max_size=12),
    bad=st.frozensets(st.sampled_from(["2", "3"])),
)
def test_whatever_is_changed_a_pool_settles_and_keeps_what_is_ready(
    size: int, drawn: list[tuple[str, object]], bad: frozenset[str]
) -> None:
    run = Run(size)
    run.bad = set(bad)
    for name, value in drawn:
        if name == "wait":
            for _ in range(int(str(value))):
                run.step()
        else:
            run.pool = structs.replace(run.pool, **{name: value})
    run.pool = structs.replace(run.pool, image_digest="1")
    for _ in range(60):
        run.step()
    assert run.settled()
    assert len(run.instances) == run.pool.size
    count = run.count
    for _ in range(5):
        run.step()
    assert run.count == count


@given(size=st.integers(1, 5))
def test_a_version_that_never_runs_takes_nothing(size: int) -> None:
    run = Run(size)
    for _ in range(5):
        run.step()
    before = {each.id for each in run.instances}
    run.bad = {"2"}
    run.pool = structs.replace(run.pool, image_digest="2")
    for _ in range(40):
        run.step()
    ready = {each.id for each in run.instances if each.is_ready}
    assert ready == before
    assert len(run.instances) == size + 1
