"""The context of a control-plane request: caller, client address, and shared services.

Services take a `RequestContext` and no HTTP objects; `cloudcore.web.app` creates one per request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, TypeVarTuple
from urllib.parse import urlsplit

import msgspec

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import AccessDenied
from cloudcore.iam.audit import AuditEvent, Auditor, Owners, client_of
from cloudcore.iam.decision import Caller, Question, Verdict, decide
from cloudcore.iam.passwords import PasswordChecks
from cloudcore.iam.patterns import StepBudget
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Founders, Principal, SourceIdentity
from cloudcore.iam.vocabulary import Vocabulary
from cloudcore.keyring import Keyring
from cloudcore.ports import Port
from cloudcore.resource_names import Crn
from cloudcore.resource_references import Authorize
from cloudcore.serving.clients import ProxyWatch
from cloudcore.web import idempotency
from cloudcore.web.audit import AuditedDatabase
from cloudcore.web.pagination import PageQuery, Pager, UuidPage
from cloudcore.web.query import parse_query
from cloudcore.web.rate_limits import DEFAULT_BUDGET, Budget

T = TypeVar("T")
B = TypeVar("B")
Ts = TypeVarTuple("Ts")


ChangeCheck = Callable[[Connection], None]
"""Checks a change at the end of its transaction; an exception rolls the change back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """The operator's settings of the control plane."""

    region: str = "local"
    auth_url: str = "http://127.0.0.1:5000"
    """Base URL of the token endpoints; also the issuer of tokens."""
    console_url: str = ""
    """Base URL of the console; empty: `auth_url`."""
    container_host: str = ""
    """Host, with its port, that container clients use; empty: that of `auth_url`."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks of proxies whose ``X-Forwarded-For`` is trusted."""
    budget: Budget = DEFAULT_BUDGET
    """Rate limit of the endpoints that have one."""
    founders: Founders = "nobody"
    """Who may create organizations and accounts."""
    container_password_seconds: int = 12 * 3600
    """Longest life of a container password."""
    oidc_internal_origins: tuple[str, ...] = ()
    """Origins of identity providers that may have any address, and may be plain HTTP."""

    @property
    def signed_in_at(self) -> str:
        """Return the base URL of the console, to which its sign-ins return."""
        return self.console_url or self.auth_url

    @property
    def host(self) -> str:
        """Return the host and port that container clients use."""
        return self.container_host or urlsplit(self.auth_url).netloc


CONTROL_SETTINGS: Final[Port[ControlSettings]] = Port("platform.settings")


class Origin(NamedTuple):
    """The origin of a request, known before authentication."""

    request_id: str
    source_ip: IPv4Address | IPv6Address | None


class Authenticator(Protocol):
    """Authenticates bearer tokens and loads the policies of their principals."""

    async def authenticate(self, bearer: str, origin: Origin) -> Principal:
        """Return the principal of a valid access token.

        Raise `Unauthenticated` if the token is invalid, expired or revoked.
        """

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        """Return the current identity policies of `principal`."""

    def organizations_of(self, principal: Principal, tx: Connection) -> Sequence[str]:
        """Return the ids of the organizations that a person belongs to."""


AUTHENTICATOR: Final[Port[Authenticator]] = Port("platform.authenticator")


MeterRequest = Callable[[str, str], None]
"""Counts a request; gets the account's id and the name of the family that answered."""


def _same(value: Any) -> Any:  # noqa: ANN401 - of any type
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The services that all control-plane requests share."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    keyring: Keyring
    authenticator: Authenticator
    settings: ControlSettings = ControlSettings()
    passwords: PasswordChecks = field(default_factory=PasswordChecks)
    proxy_watch: ProxyWatch = field(default_factory=ProxyWatch)
    auditor: Auditor | None = None
    """Writes an audit event for every change; None to write none."""
    meter_request: MeterRequest = lambda _account_id, _family: None
    """Counts a request that was answered; it must be quick."""


PLATFORM: Final[Port[Platform]] = Port("platform.platform")


@dataclass(frozen=True, slots=True)
class Reply(Generic[B]):
    """A response with an encoded body; `B` is the type of the body."""

    status: int
    body: bytes
    location: str | None = None
    content_type: str = "application/json"
    is_replayed: bool = False


class RequestContext:
    """One request: its caller, and the services that handle it."""

    # Not a dataclass: the framework would copy one field by field.

    def __init__(
        self,
        platform: Platform,
        *,
        request_id: str,
        source_ip: IPv4Address | IPv6Address | None,
        action: str | None,
        status: int = 200,
        path: str = "",
        query_string: bytes = b"",
        vocabulary: Vocabulary | None = None,
        user_agent: bytes | None = None,
        parameters: Mapping[str, str] | None = None,
        is_change: bool = False,
    ) -> None:
        self.auditor: Auditor | None = platform.auditor
        self._authenticator = platform.authenticator
        self._database: Database = platform.database
        self.database: Database = platform.database
        """An `AuditedDatabase` if the request makes a change and its route has an action."""
        self.change_check: ChangeCheck | None = None
        """Called at the end of the change's transaction."""
        self.details: dict[str, object] = {}
        """Details that the change adds to its audit event; cleared before each attempt."""
        if is_change and action is not None:
            self.database = AuditedDatabase(
                platform.database, self.details.clear, self._conclude_change
            )
        self.clock: Clock = platform.clock
        self.new_id: Callable[[], str] = platform.new_id
        self.keyring: Keyring = platform.keyring
        self.settings: ControlSettings = platform.settings
        self.passwords: PasswordChecks = platform.passwords
        self._meter_request = platform.meter_request
        self.vocabulary: Vocabulary = vocabulary or Vocabulary()
        """The actions and resources that policies can name."""
        self.request_id = request_id
        self.source_ip = source_ip
        self.action = action
        """The route's action, which the caller must be allowed to do."""
        self.caller: Principal | None = None
        """None only on public routes."""
        self.authenticate: Callable[[], Awaitable[Principal]] | None = None
        """Authenticates the request's access token, as of now; None on public routes."""
        self.policies: Sequence[Policy] = ()
        """The caller's identity policies, if the route has an action."""
        self.allowed_somewhere = True
        """False if the caller's policies allow the route's action on no resource. Then the refusal
        must not depend on what exists."""
        self.authorized: list[tuple[str, str]] = []
        """The pairs of action and resource allowed so far."""
        self.claim: idempotency.Claim | None = None
        """This attempt's claim on the record of its ``Idempotency-Key``."""
        self.is_committed = False
        self.event_owner: str | None = None
        """The account or organization whose audit log has the change; by default the resource's."""
        self.asked: tuple[str, str] | None = None
        """The action and resource of the last call of `authorize`."""
        self._user_agent = user_agent
        self._parameters = parameters or {}
        self._status = status
        self._path = path
        self._query_string = query_string

    @property
    def account_or_person(self) -> str:
        """Return the id of the caller's account, or of a person; empty if there is no caller."""
        return "" if self.caller is None else self.caller.account_id or self.caller.id

    def authorize(
        self,
        resource: str,
        *,
        action: str | None = None,
        resource_policy: Policy | None = None,
        work: StepBudget | None = None,
    ) -> None:
        """Check that the caller may do the route's action, or `action`, on the resource.

        `resource` is a CRN. The decision may use the steps left in `work`; None means the usual
        number for one decision.

        Raise `AccessDenied` if no policy allows the action, or one denies it.
        """
        asked = action or self.action
        assert asked is not None, "a route without an action has nothing to authorize"
        self.asked = asked, resource
        caller = self.caller
        question = Question(
            caller=caller and Caller(caller.crn, caller.account_id or caller.organization_id),
            action=asked,
            resource=resource,
            resource_account_id=Crn.parse(resource).account,
            source_ip=self.source_ip,
            now=self.clock(),
            work=work,
        )
        verdict = decide(question, self.policies, resource_policy)
        if verdict is Verdict.NEEDS_RESOURCE_POLICY and caller and not caller.account_id:
            verdict = Verdict.NEEDS_OWNER
        if not verdict.is_allowed:
            raise refusal(asked, verdict if self.allowed_somewhere else None, caller)
        if self.asked not in self.authorized:  # a transaction may be tried again
            self.authorized.append(self.asked)

    def right_to(self, action: str) -> Authorize:
        """Return a check of the caller's right to do `action` on a resource that the request names.

        The check takes the resource's CRN. Its refusals are all alike, since a reason would reveal
        whether there is such a resource.
        """

        def check(crn: str) -> None:
            try:
                self.authorize(crn, action=action)
            except AccessDenied:
                raise AccessDenied(
                    f"you may not do {action} on what the request names: none of your policies"
                    " allows it, or one denies it"
                ) from None

        return check

    async def authorize_again(self, resource: str) -> None:
        """Repeat the check of `authorize` with the caller's current session and policies.

        This is for a request that has waited since its first check.

        Raise `Unauthenticated` if the token is no longer valid, `AccessDenied` if no policy allows
        the action, or one denies it.
        """
        assert self.authenticate is not None
        self.caller = await self.authenticate()
        self.policies = await self._authenticator.policies_of(self.caller)
        self.authorized.clear()
        self.authorize(resource)

    async def own_policies(self) -> Sequence[Policy]:
        """Return the caller's identity policies, whether or not the route has an action."""
        assert self.caller is not None
        return self.policies or await self._authenticator.policies_of(self.caller)

    def query(self, shape: type[T]) -> T:
        """Parse the query parameters as `shape`.

        Raises:
            InvalidInput: a parameter is invalid; has ``field`` and ``reason``.

        """
        return parse_query(self._query_string, shape)

    def pager(self, query: PageQuery | UuidPage, *within: str) -> Pager:
        """Return the pager for the page that `query` requests of the list at this path.

        Its marker is valid only for the same account and the same `within`, which are the inputs of
        the list besides its path and query.

        Raise `InvalidInput` if the query's marker does not belong to this list.
        """
        return Pager(self.keyring, query, (self._path, self.account_or_person, *within))

    async def commit(
        self,
        change: Callable[[Connection, *Ts], T],
        *args: *Ts,
        wrap: Callable[[T], B] = _same,
        location: Callable[[T], str] | None = None,
        details: Callable[[T], Mapping[str, object] | None] | None = None,
    ) -> Reply[B]:
        """Run `change`, and store its response under the ``Idempotency-Key``, in one transaction.

        `wrap` converts the result of `change` to the body, which by default is the result; like
        `change` it may run more than once. `location` maps the result to the ``Location`` header,
        `details` to additional details of the audit event, or to None if nothing was changed, so
        that no event is written. The response has the route's status.

        Raise `InProgress` if another attempt has taken over; nothing was changed.
        """
        self.check_authorized()
        assert not self.is_committed, "a request has only one outcome"

        def run(connection: Connection) -> Reply[B]:
            self.details.clear()
            result = change(connection, *args)
            if self.change_check is not None:
                self.change_check(connection)
            body = msgspec.json.encode(wrap(result))
            where = location(result) if location else None
            more = details(result) if details else {}
            if more is not None:
                self._record_change(
                    connection, more if where is None else {**more, "location": where}
                )
            reply: Reply[B] = Reply(self._status, body, where)
            if self.claim is not None:
                self._complete(connection, self.claim, reply)
            return reply

        reply = await self._database.write(run)
        self.is_committed = True
        return reply

    def audit(
        self,
        tx: Connection,
        action: str,
        owners: Sequence[str],
        *,
        principal: str,
        source: SourceIdentity | None,
        resource: str = "",
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write an audit event beside that of the operation, such as a sign-in, for each owner."""
        if self.auditor is None:
            return
        for owner_id in owners:
            made = (resource or principal,)
            event = self._event(owner_id, action, made, principal, source, details or {})
            self.auditor.record(tx, event)

    def note_refusal(
        self,
        action: str,
        *,
        principal: str,
        source: SourceIdentity | None,
        owner_id: str = "",
        owners: Owners | None = None,
        resource: str = "",
    ) -> None:
        """Count a refused attempt; the auditor writes its event later.

        The event belongs to `owner_id` or, if `owners` is passed, to the owners that this function
        returns when the event is written.
        """
        if self.auditor is not None:
            event = self._event(owner_id, action, (resource,), principal, source, {})
            self.auditor.note_refusal(event._replace(outcome="refused"), owners)

    def note_refusal_of(self, caller: Principal) -> None:
        """Count the refusal of this request for the log of the caller's account or organizations.

        A refusal without an action, such as a person's on a route for accounts that requires no
        permission, is not counted.
        """
        action, resource = self.asked or (self.action or "", "")
        if not action:
            return
        owners = None
        if caller.account_id is None:
            owners = partial(self._authenticator.organizations_of, caller)
        self.note_refusal(
            action,
            principal=caller.crn,
            source=caller.source,
            owner_id=caller.account_id or "",
            owners=owners,
            resource=resource,
        )

    def _conclude_change(self, tx: Connection) -> None:
        """Run `change_check` and write the audit event, at the end of the change's transaction."""
        if self.change_check is not None:
            self.change_check(tx)
        self._record_change(tx)

    def _record_change(self, tx: Connection, more: Mapping[str, object] | None = None) -> None:
        """Write the change's audit event, if the route has an action and it was authorized."""
        if self.auditor is None or self.action is None or not self.authorized:
            return
        assert self.caller is not None
        resources = [resource for _, resource in self.authorized]
        owner_id = self.event_owner or Crn.parse(resources[0]).account
        caller, details = self.caller, {**self._parameters, **self.details, **(more or {})}
        event = self._event(owner_id, self.action, resources, caller.crn, caller.source, details)
        self.auditor.record(tx, event)

    def _event(
        self,
        owner_id: str,
        action: str,
        resources: Sequence[str],
        principal: str,
        source: SourceIdentity | None,
        details: Mapping[str, object],
    ) -> AuditEvent:
        return AuditEvent(
            id=self.new_id(),
            owner_id=owner_id,
            occurred_at=self.clock(),
            action=action,
            resources=resources,
            principal=principal,
            source=source,
            client=client_of("control", self.source_ip, self._user_agent, self.request_id),
            details=details,
        )

    def note_answered(self, family: str) -> None:
        """Meter this request, which was not refused, if the caller acts in an account."""
        if self.caller is not None and self.caller.account_id is not None:
            self._meter_request(self.caller.account_id, family)

    def check_authorized(self) -> None:
        """Raise `RuntimeError` if the route has an action and `authorize` was not called."""
        if self.action is not None and not self.authorized:
            raise RuntimeError(f"{self.action} was never authorized")

    async def record(self, status: int, body: bytes, content_type: str) -> None:
        """Store an error as the outcome under the ``Idempotency-Key``."""
        assert self.claim is not None
        reply: Reply[object] = Reply(status, body, content_type=content_type)
        await self._database.write(self._complete, self.claim, reply)

    def _complete(self, connection: Connection, claim: idempotency.Claim, reply: Reply[B]) -> None:
        outcome = idempotency.RecordedOutcome(
            reply.status, reply.content_type, reply.location, reply.body, self.authorized
        )
        sealed = outcome.seal(self.keyring, claim.scope)
        idempotency.complete(connection, claim, reply.status, sealed)


def refusal(
    action: str, verdict: Verdict | None = None, caller: Principal | None = None
) -> AccessDenied:
    """Return the error for a refused action; without a verdict, it is allowed on no resource."""
    why = "your policies allow it on no resource" if verdict is None else verdict.value
    if verdict is None and caller is not None and caller.account_id is None:
        why = "a person calls account services in an assumed role"
    return AccessDenied(f"you may not do {action} here: {why}")
