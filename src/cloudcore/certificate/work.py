"""Check, issue, renew and revoke: the steps of the job `waking.WORK`.

Each step reads the certificate, does one thing outside, and records what it came to in one
transaction. If the process dies in between, another does the same thing again: an authority may
issue twice, and the first one's key is gone with the process; revoking twice is one revocation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, cast, get_args

from cloudcore.certificate import issue_rows, outcomes, rows
from cloudcore.certificate.challenges import values_by_record
from cloudcore.certificate.issued import check_issued
from cloudcore.certificate.issuer import (
    CA_REFUSED,
    DomainRefused,
    Issuer,
    Issuers,
    Reason,
    Refused,
    Unreachable,
)
from cloudcore.certificate.keys import (
    SLOW,
    new_private_key,
    private_pem,
    signing_request,
)
from cloudcore.certificate.outcomes import Problem
from cloudcore.certificate.ports import Events
from cloudcore.certificate.resolving import Resolver, Seen, look_at
from cloudcore.certificate.rows import Certificate
from cloudcore.certificate.rules import VALIDATION_SECONDS
from cloudcore.certificate.sealing import PrivateKeys, SealedKey
from cloudcore.certificate.services import Proofs
from cloudcore.certificate.waking import Task, task_of
from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import PlatformError
from cloudcore.jobs.kinds import Change, Done, Next
from cloudcore.jobs.queue import Job
from cloudcore.threads import SLOW_KEYS

STEP_SECONDS: Final = 600
_CHECK_SECONDS: Final = (15, 3600)
_ISSUE_SECONDS: Final = (60, 6 * 3600)
_REVOKE_SECONDS: Final = (10, 3600)
_LARGEST_DOUBLING: Final = 20
_MOST_KEYS: Final = 4
"""Certificates with slow keys of one account that a process issues at once; further ones leave the
slots of jobs to other accounts."""
_KEY_SECONDS: Final = 1
"""What one of them takes or less: those that are put off come again one after the other."""


class Turns(NamedTuple):
    """How often one task was tried, and since when."""

    task: Task
    tries: int
    since: int

    @classmethod
    def of(cls, cursor: object, task: Task, now: int) -> Turns:
        """Return the turns of a job's cursor; they begin anew with another task."""
        if isinstance(cursor, dict) and cursor.get("task") == task:
            return cls(task, cursor["tries"], cursor["since"])
        return cls(task, 0, now)

    def again(self, seconds: tuple[int, int], change: Change) -> Next:
        """Return the step that tries again; the pause doubles, from the first to the longest."""
        first, longest = seconds
        pause = min(first * 2.0 ** min(self.tries, _LARGEST_DOUBLING), longest)
        cursor = self._replace(tries=self.tries + 1)._asdict()
        return Next(cursor, change, delay_seconds=pause)


@dataclass(frozen=True, slots=True)
class Texts:
    """The TXT records of one certificate; see `PublishTxt`."""

    database: Database
    certificate: Certificate

    async def publish(self, values: Mapping[str, str]) -> None:
        """Publish the value for each domain, in place of all values before."""
        chosen = [each for each in self.certificate.challenges if each.domain in values]
        texts = values_by_record(chosen, [values[each.domain] for each in chosen])
        for each in chosen:
            if each.our_dns:  # there is no CNAME: we answer for the domain itself
                texts[each.cname_record_name] = texts[each.expected_cname]
        await self.database.write(issue_rows.put_texts, self.certificate.id, texts.items())

    async def withdraw(self) -> None:
        """Publish nothing any more."""
        await self.database.write(issue_rows.put_texts, self.certificate.id, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateWork:
    """Does what is to be done with certificates; one per process."""

    database: Database
    clock: Clock
    private_keys: PrivateKeys
    issuers: Issuers
    resolver: Resolver
    proofs: Proofs
    events: Events
    _slow_keys: Counter[str] = field(default_factory=Counter[str])
    """How many certificates with slow keys are being issued, by account."""
    _put_off: dict[str, int] = field(default_factory=dict)
    """When the last one comes again that was put off, by account."""

    async def step(self, job: Job) -> Next | Done:
        """Do what comes first for a certificate."""
        assert job.account_id is not None
        place = job.account_id, job.arguments["certificate_id"]
        found = await self.database.read(rows.find_certificate, *place)
        now = self.clock()
        task = None if found is None else task_of(found, now)
        if found is None or task is None:
            return Done(_bind(outcomes.look_again, *place, now))
        turns = Turns.of(job.cursor, task, now)
        if task == "check":
            return await self._check(found, turns)
        if task == "issue":
            return await self._issue_in_turn(found, turns)
        return await self._revoke(found, turns)

    async def _check(self, found: Certificate, turns: Turns) -> Next:
        """Look at the records of the challenges."""
        checks = await look_at(self.resolver, found.challenges)
        is_last = self._is_last(turns)
        note = _bind(
            partial(outcomes.note_checks, is_last=is_last), found, checks, self.events, self.clock()
        )
        if found.status != "pending_validation" or is_last or not _wrong(checks):
            return Next(None, note)
        return turns.again(_CHECK_SECONDS, note)

    async def _issue_in_turn(self, found: Certificate, turns: Turns) -> Next:
        """Issue a certificate, or come again if the account has enough slow keys under way."""
        if found.key_algorithm not in SLOW or found.csr is not None:
            return await self._issue(found, turns)
        account_id, under_way = found.account_id, self._slow_keys
        if under_way[account_id] >= _MOST_KEYS:
            return self._come_again(account_id, turns)
        under_way[account_id] += 1
        try:
            return await self._issue(found, turns)
        finally:
            under_way[account_id] -= 1
            if not under_way[account_id]:
                del under_way[account_id]
                self._put_off.pop(account_id, None)

    def _come_again(self, account_id: str, turns: Turns) -> Next:
        """Put a certificate off until those of its account before it have had their turn."""
        now = self.clock()
        at = max(self._put_off.get(account_id, 0), now) + _KEY_SECONDS * MICROSECONDS
        self._put_off[account_id] = at
        return Next(turns._asdict(), None, delay_seconds=(at - now) / MICROSECONDS)

    async def _issue(self, found: Certificate, turns: Turns) -> Next:
        """Let the authority issue the certificate, with a new key or the one of its owner."""
        issuer = self.issuers.current
        try:
            await self._check_rights(found)
            # First sealed: what an authority signs then is kept, and it is not asked for more.
            try:
                request, sealed = await self._request(found)
            except PlatformError as error:
                problem = Problem("KEY_UNUSABLE", f"the KMS key: {error}")
                return self._not_now(found, turns, problem)
            chain = await issuer.issue(request, found.domains, Texts(self.database, found))
            issued = check_issued(chain, request, found.domains, self.clock())
        except Refused as refused:
            return self._refused(found, turns, refused)
        except Unreachable as error:
            return self._not_now(found, turns, Problem("CA_UNREACHABLE", str(error)))
        note = _bind(
            outcomes.note_issued, found, issuer.name, issued, sealed, self.events, self.clock()
        )
        return Next(None, note)

    async def _request(self, found: Certificate) -> tuple[bytes, SealedKey | None]:
        """Return the signing request in DER, and the new key, sealed, unless the owner has it.

        Raises:
            PlatformError: the account's KMS key cannot be used now.

        """
        if found.csr is not None:
            return found.csr, None
        if found.key_algorithm in SLOW:
            key = await SLOW_KEYS.run(found.account_id, new_private_key, found.key_algorithm)
        else:
            key = new_private_key(found.key_algorithm)
        sealed = await self.private_keys.seal(found.account_id, found.id, private_pem(key))
        return signing_request(key, found.domains), sealed

    async def _check_rights(self, found: Certificate) -> None:
        """Look whether the account may have a certificate for the domains, still.

        An authority that reads DNS does not do it for us: it knows one account for all of ours, and
        may not ask again about what it has seen for another one. So this looks each time: what a
        step before has seen may be of long ago, if a worker died.

        Raises:
            Refused: a grant was taken away, or a record leads to us no more.
            Unreachable: the DNS did not answer.

        """
        refused = []
        for each in found.challenges:
            if each.our_dns and not await self.database.read(
                self.proofs.is_hosted, found, each.domain
            ):
                message = f"the operator no longer grants your account {each.domain}"
                refused.append(Seen(each.domain, "CA_REFUSED", message))
        if not refused:
            refused = _wrong(await look_at(self.resolver, found.challenges))
        if not refused:
            return
        if all(each.code == "DNS_UNREACHABLE" for each in refused):
            raise Unreachable(refused[0].message)
        raise Refused(
            CA_REFUSED,
            "it is no longer proved that the account may have a certificate for "
            + ", ".join(each.domain for each in refused),
            [
                DomainRefused(each.domain, cast("Reason", each.code), each.message)
                for each in refused
                if each.code in get_args(Reason)
            ],
        )

    def _refused(self, found: Certificate, turns: Turns, refused: Refused) -> Next:
        """Return what follows a refusal.

        A renewal is tried again, and so is what only waits for a record that the authority does not
        see yet.
        """
        codes = {each.code for each in refused.domains} or {refused.code}
        is_last = CA_REFUSED in codes or self._is_last(turns)
        domains = tuple(Seen(each.domain, each.code, each.message) for each in refused.domains)
        problem = Problem(refused.code, refused.message, domains)
        note = _bind(
            partial(outcomes.note_refused, is_last=is_last),
            found,
            problem,
            self.events,
            self.clock(),
        )
        if is_last and found.certificate_pem is None:
            return Next(None, note)
        return turns.again(_ISSUE_SECONDS, note)

    def _not_now(self, found: Certificate, turns: Turns, problem: Problem) -> Next:
        """Return what follows when an authority, the DNS or a key is not there for a while."""
        if found.certificate_pem is None:
            return self._fault(found, turns, _ISSUE_SECONDS, problem)
        return self._refused(found, turns, Refused(CA_REFUSED, problem.message))

    async def _revoke(self, found: Certificate, turns: Turns) -> Next:
        """Let authorities revoke all that they issued for the certificate and has not expired."""
        place = found.account_id, found.id
        issues = await self.database.read(issue_rows.list_issues, *place, self.clock())
        try:
            for name, certificate in issues:
                await self._issuer(name).revoke(certificate, None)
        except (Refused, Unreachable) as error:
            problem = Problem("REVOCATION_FAILED", str(error))
            return self._fault(found, turns, _REVOKE_SECONDS, problem)
        return Next(None, _bind(outcomes.note_revoked, found, self.events, self.clock()))

    def _fault(
        self, found: Certificate, turns: Turns, seconds: tuple[int, int], problem: Problem
    ) -> Next:
        """Note why a task could not be done, and try again later."""
        return turns.again(seconds, _bind(outcomes.note_fault, found, problem, self.clock()))

    def _issuer(self, name: str) -> Issuer:
        """Return the authority of a name, or raise `Refused`."""
        found = self.issuers.named(name)
        if found is None:
            raise Refused(CA_REFUSED, f"this install has no authority {name!r} any more")
        return found

    def _is_last(self, turns: Turns) -> bool:
        return self.clock() - turns.since > VALIDATION_SECONDS * MICROSECONDS


def _wrong(checks: Sequence[Seen]) -> list[Seen]:
    return [each for each in checks if each.code is not None]


def _bind(change: Callable[..., None], *arguments: object) -> Change:
    """Return a change of a transaction: `change` with what comes behind the transaction."""

    def bound(tx: Connection) -> None:
        change(tx, *arguments)

    return bound
