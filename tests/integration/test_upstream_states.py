"""When an upstream may be asked, as all workers know it."""

from __future__ import annotations

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Database
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from registry.metadata.pull_through.tables import CACHE_RULES, pull_through_cache_rules
from registry.services.pull_through import upstream_states
from registry.services.pull_through.rules import update_rule
from registry.services.pull_through.upstream_states import (
    FAULT_SECONDS,
    UpstreamCondition,
    UpstreamWatch,
    conditions,
)
from registry.upstream.base import (
    Credential,
    HiddenUpstream,
    NotUpstream,
    RateLimit,
    Remote,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)
from tests.databases import add_account, on_both_databases
from tests.dying import Kind, PassingDatabase
from tests.scripted_upstream import Answer, error, scripted_upstream
from tests.upstream_world import NOW, ask_of, rule_of

RULE = "00000000-0000-7000-8000-000000000001"
REMOTE = Remote(RULE, "https://hub.example.com", "library/alpine", None)

_DELETE_RULES = Statement(pull_through_cache_rules.delete())
_LAST_SUCCESS = Statement(pull_through_cache_rules.select())


class Install:
    """Two workers that share a database and a clock."""

    def __init__(self, database: Database, account: str) -> None:
        self.database = database
        self.account = account
        self.now = NOW
        self.one, self.two = (UpstreamWatch(database, lambda: self.now) for _ in range(2))

    def after(self, seconds: float) -> None:
        self.now += int(seconds * MICROSECONDS)

    async def fail(self, failure: UpstreamFailed, times: int = 1) -> None:
        """Let the first worker's requests fail, a second apart."""
        for number in range(times):
            self.after(1 if number else 0)
            await self.one.failed(REMOTE, failure)

    async def condition(self) -> UpstreamCondition:
        return (await self.database.read(conditions, [RULE], self.now))[RULE]


@pytest.fixture
async def shared(database: Database) -> Install:
    account = await database.write(add_account, "acme")
    await database.write(CACHE_RULES.add, rule_of(account, id=RULE, upstream_url=REMOTE.origin))
    return Install(database, account)


@on_both_databases
async def test_a_limit_holds_for_all_workers_until_its_time(shared: Install) -> None:
    await shared.two.check(REMOTE)
    until = shared.now + 30 * MICROSECONDS
    await shared.fail(UpstreamLimited("hub.example.com wants fewer requests", until))
    for watch in (shared.one, shared.two, UpstreamWatch(shared.database, lambda: shared.now)):
        with pytest.raises(UpstreamLimited, match="asked again in 30 s") as limited:
            await watch.check(REMOTE)
        assert limited.value.retry_at == until
    # Somebody is answered still; the limit stands.
    await shared.two.succeeded(REMOTE, None)
    assert (await shared.condition()).paused_until == until
    shared.after(30)
    await shared.two.check(REMOTE)
    assert (await shared.condition()).paused_until is None


@on_both_databases
async def test_a_circuit_opens_after_failures_in_a_row_and_closes_with_a_success(
    shared: Install,
) -> None:
    down = UpstreamUnreachable("hub.example.com cannot be reached: no connection")
    for _ in range(10):  # at once: they count once
        await shared.one.failed(REMOTE, down)
    assert (await shared.condition()).faults[0].occurrences == 10
    shared.after(1)
    await shared.fail(down)
    await shared.two.check(REMOTE)
    await shared.two.succeeded(REMOTE, None)  # so they are not three in a row
    shared.after(1)
    await shared.fail(down, 2)
    await shared.two.check(REMOTE)
    shared.after(1)
    for seconds in (5, 10, 20, 40, 80, 120, 120):
        await shared.fail(down)
        with pytest.raises(UpstreamUnreachable, match=f"asked again in {seconds} s"):
            await shared.two.check(REMOTE)
        shared.after(seconds)
        await shared.two.check(REMOTE)
    await shared.two.succeeded(REMOTE, None)
    await shared.fail(down, 2)
    await shared.one.check(REMOTE)


async def test_failures_in_a_row_do_not_shorten_the_time_that_an_upstream_wanted(
    shared: Install,
) -> None:
    """Requests that were on their way fail after it has said so."""
    until = shared.now + 3600 * MICROSECONDS
    await shared.fail(UpstreamLimited("hub.example.com wants fewer requests", until))
    await shared.fail(UpstreamUnreachable("hub.example.com cannot be reached"), 9)
    with pytest.raises(UpstreamLimited) as limited:
        await shared.two.check(REMOTE)
    assert limited.value.retry_at == until


async def test_refusals_and_broken_content_open_no_circuit(shared: Install) -> None:
    await shared.fail(UpstreamRefused("no"), 9)
    await shared.fail(UpstreamBroken("a wrong length"), 9)
    await shared.two.check(REMOTE)
    broken = UpstreamBroken("hub.example.com answered with status 502")
    broken.http_status = 502
    shared.after(1)
    await shared.fail(broken, 3)
    with pytest.raises(UpstreamUnreachable):
        await shared.two.check(REMOTE)


@on_both_databases
async def test_faults_are_counted_by_code_and_shown_for_a_day(shared: Install) -> None:
    refused = UpstreamRefused("the first")
    refused.http_status = 401
    await shared.fail(refused)
    shared.after(60)
    await shared.fail(UpstreamRefused("the second"))
    await shared.fail(UpstreamLimited("slowly", shared.now))
    shown = (await shared.condition()).faults
    first, second = sorted(shown, key=lambda fault: fault.code)
    assert (first.code, first.occurrences) == ("UPSTREAM_LIMITED", 1)
    assert upstream_states.severity(first) == "warning"
    assert (second.code, second.message) == ("UPSTREAM_REFUSED", "the second")
    assert (second.first_at, second.last_at, second.occurrences) == (NOW, shared.now, 2)
    assert upstream_states.severity(second) == "error"
    assert upstream_states.details(second) == {"stage": "auth"}
    shared.after(FAULT_SECONDS + 1)
    assert not (await shared.condition()).faults


async def test_what_is_left_of_a_limit_is_shown(shared: Install) -> None:
    for remaining, seconds, shown in ((76, 0, 76), (75, 1, 76), (74, 10, 74), (0, 11, 0)):
        shared.now = NOW + seconds * MICROSECONDS
        await shared.two.check(REMOTE)
        await shared.two.succeeded(REMOTE, RateLimit(100, remaining, 21600))
        condition = await shared.condition()
        assert condition.budget_left == shown


@on_both_databases
async def test_the_last_success_is_noted_once_a_minute(shared: Install) -> None:
    async def last() -> int:
        row = await shared.database.read(lambda tx: tx.row(_LAST_SUCCESS))
        assert row is not None
        found: int = row[list(pull_through_cache_rules.c.keys()).index("last_success_at")]
        return found

    for seconds, noted in ((0, 0), (59, 0), (60, 60)):
        shared.now = NOW + seconds * MICROSECONDS
        await shared.one.succeeded(REMOTE, None)
        assert await last() == NOW + noted * MICROSECONDS


@on_both_databases
async def test_for_which_repository_a_credential_was_accepted_is_known_to_all_for_an_hour(
    shared: Install,
) -> None:
    remote = REMOTE._replace(credential=Credential("user", "secret"))
    other = remote._replace(repository="library/other")

    async def accepted(of: Remote, *, elsewhere: bool = True) -> bool:
        await shared.two.check(of)
        return shared.two.is_accepted(of, elsewhere=elsewhere)

    await shared.one.succeeded(REMOTE, None)  # anonymous
    await shared.one.succeeded(remote._replace(repository=""), None)  # nothing was found
    assert not await accepted(other)
    shared.after(1)
    await shared.one.succeeded(remote, None)
    assert await accepted(other)
    assert not await accepted(remote)
    assert await accepted(remote, elsewhere=False)
    shared.after(3599)
    assert await accepted(other)
    shared.after(1)
    assert not await accepted(other)
    await shared.one.succeeded(other, None)
    assert await accepted(remote)
    await shared.database.write(
        update_rule, shared.account, RULE, {"upstream_prefix": "team"}, shared.now
    )
    assert not await accepted(remote)


@on_both_databases
async def test_a_rule_that_was_deleted_meanwhile_does_no_harm(shared: Install) -> None:
    await shared.fail(UpstreamRefused("no"))
    await shared.database.write(lambda tx: tx.execute(_DELETE_RULES))
    await shared.fail(UpstreamRefused("no"))
    await shared.one.succeeded(REMOTE, RateLimit(1, 1, 1))
    assert await shared.condition() == UpstreamCondition([], None, None)


class FullDatabase(PassingDatabase):
    """A database without room for changes, while it is full."""

    is_full = True

    async def before(self, kind: Kind, _call: object) -> None:
        if self.is_full and kind != "read":
            raise Unavailable("the database or disk is full")


@on_both_databases
async def test_answers_stand_though_the_database_is_full_which_is_logged_once(
    shared: Install, caplog: pytest.LogCaptureFixture
) -> None:
    full = FullDatabase(shared.database)
    watch = UpstreamWatch(full, lambda: shared.now)
    with scripted_upstream() as served, ask_of(served, watch=watch) as asked:
        digest = served.add_image("library/alpine", "3", b"layer")
        remote = REMOTE._replace(origin=served.url)

        async def pull() -> None:
            shared.after(upstream_states.SUCCESS_SECONDS)
            head = await asked.client.head_manifest(remote, "3")
            assert head is not None
            assert str(head.digest) == str(digest)
            with pytest.raises(NotUpstream):
                await asked.client.head_manifest(remote, "4")
            served.script = lambda _asked: error(500, "UNKNOWN")
            with pytest.raises(UpstreamBroken):
                await asked.client.head_manifest(remote, "3")
            served.script = lambda _asked: None

        for _ in range(2):
            await pull()
        told = "how upstreams answer cannot be recorded: the database or disk is full"
        assert caplog.text.count(told) == 1
        full.is_full = False
        await pull()
        full.is_full = True
        await pull()
        assert caplog.text.count(told) == 2
    assert [each.occurrences for each in (await shared.condition()).faults] == [1]


async def test_an_upstream_that_wants_fewer_requests_gets_none(shared: Install) -> None:
    with scripted_upstream() as served, ask_of(served, watch=shared.one) as asked:
        served.add_image("library/alpine", "3", b"layer")
        asked.now = shared.now
        remote = REMOTE._replace(origin=served.url)
        served.script = lambda _asked: error(429, "TOOMANYREQUESTS", {"Retry-After": "7"})
        for _ in range(3):
            with pytest.raises(UpstreamLimited) as limited:
                await asked.client.get_manifest(remote, "3")
            assert limited.value.retry_at == shared.now + 7 * MICROSECONDS
        assert len(served.asked) == 1
        served.script = lambda _asked: None
        shared.after(7)
        await asked.client.get_manifest(remote, "3")
        served.script = lambda _asked: Answer(503)
        for _ in range(5):
            shared.after(1)
            with pytest.raises(UpstreamFailed):
                await asked.client.get_manifest(remote, "3")
        assert len(served.asked) == 2 + 3
        # A test of the rule asks all the same, and what it finds counts.
        served.script = lambda _asked: None
        assert await asked.client.ping(remote) == 200
        await asked.client.get_manifest(remote, "3")


async def test_a_refused_repository_is_no_fault_once_the_credential_was_good_for_another(
    shared: Install,
) -> None:
    """As GHCR: no token for what is private or is not there, whatever the credential."""
    with scripted_upstream() as served, ask_of(served, watch=shared.one) as asked:
        served.add_image("library/alpine", "3", b"layer")
        served.auth = "bearer"
        asked.now = shared.now
        remote = REMOTE._replace(origin=served.url, credential=Credential("user", "secret"))
        hidden = remote._replace(repository="library/hidden")
        served.script = lambda each: (
            error(403, "DENIED") if each.path == "/token" and "hidden" in each.target else None
        )
        with pytest.raises(UpstreamRefused):
            await asked.client.get_manifest(hidden, "3")
        await asked.client.get_manifest(remote, "3")
        with ask_of(served, watch=shared.two) as other:  # of another worker
            other.now = shared.now
            with pytest.raises(HiddenUpstream):
                await other.client.get_manifest(hidden, "3")
        with pytest.raises(HiddenUpstream):
            await asked.client.get_manifest(hidden._replace(credential=None), "3")
        assert [each.occurrences for each in (await shared.condition()).faults] == [1]
        served.script = lambda each: error(401, "DENIED") if each.path == "/token" else None
        shared.after(3600)
        asked.now = shared.now
        for each in (remote, hidden):  # it was revoked, or its acceptance is long ago
            with pytest.raises(UpstreamRefused):
                await asked.client.get_manifest(each, "3")
        assert [each.occurrences for each in (await shared.condition()).faults] == [3]
