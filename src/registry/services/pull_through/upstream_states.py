"""The states of upstreams: rate limits, and a circuit breaker that opens when one fails.

The state of an upstream is in a row per rule, so all workers and nodes share it, and it survives
restarts. Each request to an upstream reads the row. It is written after a failure, a recovery or a
changed rate limit, and after other successes at most once a minute.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from registry.metadata.pull_through import upstream_states as rows
from registry.metadata.pull_through.upstream_states import UpstreamFault, UpstreamState
from registry.upstream.base import (
    RateLimit,
    Remote,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)

LIMITED: Final = "UPSTREAM_LIMITED"
UNREACHABLE: Final = "UPSTREAM_UNREACHABLE"
REFUSED: Final = "UPSTREAM_REFUSED"
BROKEN: Final = "UPSTREAM_BROKEN"
_CODES: Final = {
    UpstreamLimited: LIMITED,
    UpstreamUnreachable: UNREACHABLE,
    UpstreamRefused: REFUSED,
}

FAILURES_TO_PAUSE: Final = 3
"""The number of failures in a row after which an upstream is not asked for a while."""
FIRST_PAUSE_SECONDS: Final = 5
"""The length of the first pause; each further failure doubles it."""
MAX_PAUSE_SECONDS: Final = 120
FAULT_SECONDS: Final = 24 * 3600
"""How long a fault is shown after its last occurrence."""
SUCCESS_SECONDS: Final = 60
"""A worker records a success of a rule at most once in this time."""
RATE_SECONDS: Final = 10
"""A worker records a change of the pulls left at most once in this time, except to 0."""
ACCEPTED_SECONDS: Final = 3600
"""How long a credential is assumed to be good after the upstream accepted it."""
SAME_ACCEPTED_SECONDS: Final = 600
"""An acceptance for the same repository is recorded at most once in this time; for another
repository, once in `SUCCESS_SECONDS`."""
_MAX_NOTED: Final = 10_000

_log = logging.getLogger(__name__)


class UpstreamCondition(NamedTuple):
    """The state of a rule's upstream, as it is shown with the rule."""

    faults: Sequence[UpstreamFault]
    """The faults of the last day, latest first."""
    budget_left: int | None
    """The number of pulls that the upstream still allows, by its last answer; None if unknown."""
    paused_until: int | None
    """When the upstream is asked again; None if it is not paused."""


def conditions(tx: Connection, rule_ids: Sequence[str], now: int) -> dict[str, UpstreamCondition]:
    """Map rule ids to the conditions of the rules' upstreams."""
    states = rows.find_states(tx, rule_ids)
    faults: defaultdict[str, list[UpstreamFault]] = defaultdict(list)
    for fault in rows.list_faults(tx, rule_ids, now - FAULT_SECONDS * MICROSECONDS):
        faults[fault.rule_id].append(fault)
    return {
        rule_id: _condition(states.get(rule_id) or UpstreamState(rule_id), faults[rule_id], now)
        for rule_id in rule_ids
    }


def severity(fault: UpstreamFault) -> Literal["warning", "error"]:
    """Return ``warning`` for a rate limit, which passes by itself, else ``error``."""
    return "warning" if fault.code == LIMITED else "error"


def details(fault: UpstreamFault) -> dict[str, str]:
    """Return details of a fault: how far the request got, and the response status, if any."""
    status = {} if fault.http_status is None else {"http_status": str(fault.http_status)}
    return {"stage": fault.stage, **status}


class UpstreamWatch:
    """Reads and writes the states of upstreams (an `UpstreamObserver`); one per process.

    A failed write, as on a full disk, does not fail the request.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, UpstreamState | None] = {}
        """The row of each rule, as last read."""
        self._succeeded_at: dict[str, int] = {}
        self._has_logged_failure = False
        """True if the log says that rows cannot be written, until one can be written again."""

    async def check(self, remote: Remote) -> None:
        """Check that the upstream may be asked now.

        Raise `UpstreamLimited` while the upstream wants no requests, `UpstreamUnreachable` if it
        has just failed several times in a row.
        """
        state = await self._database.read(rows.find_state, remote.rule_id)
        if len(self._known) >= _MAX_NOTED:
            self._known.clear()
            self._succeeded_at.clear()
        self._known[remote.rule_id] = state
        now = self._clock()
        if state is None or state.paused_until is None or state.paused_until <= now:
            return
        host = remote.origin.partition("://")[2]
        seconds = -(-(state.paused_until - now) // MICROSECONDS)
        if state.pause_code == LIMITED:
            words = f"{host} wants fewer requests; it is asked again in {seconds} s"
            raise UpstreamLimited(words, state.paused_until)
        raise UpstreamUnreachable(
            f"{host} failed {state.failures} times in a row; it is asked again in {seconds} s"
        )

    async def succeeded(self, remote: Remote, rate: RateLimit | None) -> None:
        """Record that a request succeeded, and the rate limit, if stated, unless nothing is new."""
        rule_id, now = remote.rule_id, self._clock()
        state = self._known.get(rule_id)
        has_failed = state is not None and (state.failures > 0 or state.paused_until is not None)
        has_news = rate is not None and _is_news(state, rate, now)
        accepted = remote.repository if _is_to_note(remote, state, now) else None
        is_due = now >= self._succeeded_at.get(rule_id, 0) + SUCCESS_SECONDS * MICROSECONDS
        if not (has_failed or has_news or is_due or accepted):
            return
        self._succeeded_at[rule_id] = now
        with self._writing():
            self._known[rule_id] = await self._database.write_relaxed(
                record_success, rule_id, rate if has_news else None, now, accepted
            )

    async def failed(self, remote: Remote, failure: UpstreamFailed) -> None:
        """Count a fault of the upstream; pause requests if it asks for that or fails repeatedly."""
        with self._writing():
            await self._database.write_relaxed(
                record_failure, remote.rule_id, failure, self._clock()
            )

    def is_accepted(self, remote: Remote, *, elsewhere: bool) -> bool:
        """Return True if the upstream has accepted the credential within the last hour.

        With `elsewhere`, only acceptance for another repository counts. This uses the row that
        `check` has read.
        """
        state = self._known.get(remote.rule_id)
        if state is None or state.accepted_at is None:
            return False
        is_late = self._clock() >= state.accepted_at + ACCEPTED_SECONDS * MICROSECONDS
        return not is_late and not (elsewhere and state.accepted_repository == remote.repository)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Ignore database failures in the block; log only the first of several in a row."""
        try:
            yield
        except Unavailable as error:
            if not self._has_logged_failure:
                _log.warning("how upstreams answer cannot be recorded: %s", error.message)
            self._has_logged_failure = True
        else:
            self._has_logged_failure = False


def record_success(
    tx: Connection, rule_id: str, rate: RateLimit | None, now: int, accepted: str | None = None
) -> UpstreamState | None:
    """Record a success of an upstream; return the new state, or None if the rule was deleted.

    `accepted` is the repository for which the rule's credential was accepted, if any.
    """
    if not rows.lock_rule(tx, rule_id):
        return None
    rows.note_success(tx, rule_id, now)
    known = rows.find_state(tx, rule_id)
    state = known or UpstreamState(rule_id)
    is_limited = state.pause_code == LIMITED and (state.paused_until or 0) > now
    if not is_limited:  # else the upstream told another worker to wait while it answered this one
        state = state._replace(paused_until=None, pause_code=None)
    state = state._replace(failures=0, failed_at=None)
    if rate is not None:
        state = state._replace(
            rate_limit=rate.limit,
            rate_remaining=rate.remaining,
            rate_window_seconds=rate.window_seconds,
            rate_at=now,
        )
    if accepted is not None:
        state = state._replace(accepted_repository=accepted, accepted_at=now)
    if state != (known or UpstreamState(rule_id)):
        rows.put_state(tx, state)
    return state


def record_failure(tx: Connection, rule_id: str, failure: UpstreamFailed, now: int) -> None:
    """Count a fault of an upstream; pause requests if it asks for that or fails repeatedly."""
    if not rows.lock_rule(tx, rule_id):
        return
    code = _code(failure)
    fault = UpstreamFault(
        rule_id, code, str(failure), failure.stage, failure.http_status, now, now, 1
    )
    rows.count_fault(tx, fault)
    state = rows.find_state(tx, rule_id) or UpstreamState(rule_id)
    if isinstance(failure, UpstreamLimited):
        until = max(failure.retry_at, state.paused_until or 0)
        rows.put_state(tx, state._replace(paused_until=until, pause_code=LIMITED))
    elif _opens_circuit(failure) and now >= (state.failed_at or 0) + MICROSECONDS:
        rows.put_state(tx, _after_failure(state, code, now))


def _after_failure(state: UpstreamState, code: str, now: int) -> UpstreamState:
    failures = state.failures + 1
    state = state._replace(failures=failures, failed_at=now)
    if failures < FAILURES_TO_PAUSE:
        return state
    doublings = min(failures - FAILURES_TO_PAUSE, 10)
    seconds = min(FIRST_PAUSE_SECONDS * 2**doublings, MAX_PAUSE_SECONDS)
    until = now + seconds * MICROSECONDS
    if (state.paused_until or 0) >= until:
        return state
    return state._replace(paused_until=until, pause_code=code)


def _opens_circuit(failure: UpstreamFailed) -> bool:
    is_server_error = failure.http_status is not None and failure.http_status >= 500
    return isinstance(failure, UpstreamUnreachable) or is_server_error


def _code(failure: UpstreamFailed) -> str:
    return next((code for kind, code in _CODES.items() if isinstance(failure, kind)), BROKEN)


def _is_news(state: UpstreamState | None, rate: RateLimit, now: int) -> bool:
    """Return True if a rate limit should be recorded: new, exhausted, or recorded long ago."""
    if state is None or state.rate_remaining is None or state.rate_limit != rate.limit:
        return True
    if state.rate_remaining == rate.remaining:
        return False
    return rate.remaining == 0 or now >= (state.rate_at or 0) + RATE_SECONDS * MICROSECONDS


def _is_to_note(remote: Remote, state: UpstreamState | None, now: int) -> bool:
    """Return True if the acceptance of a credential for a repository should be recorded."""
    if remote.credential is None or not remote.repository:
        return False
    if state is None or state.accepted_at is None:
        return True
    is_same = state.accepted_repository == remote.repository
    seconds = SAME_ACCEPTED_SECONDS if is_same else SUCCESS_SECONDS
    return now >= state.accepted_at + seconds * MICROSECONDS


def _condition(
    state: UpstreamState, faults: Sequence[UpstreamFault], now: int
) -> UpstreamCondition:
    is_paused = state.paused_until is not None and state.paused_until > now
    return UpstreamCondition(
        faults, state.rate_remaining, state.paused_until if is_paused else None
    )
