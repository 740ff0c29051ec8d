"""Role sessions that the platform's own services begin, such as the sessions of instances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import invalid_field
from cloudcore.iam.audit import AuditEvent, Auditor
from cloudcore.iam.policy import TRUST_ACTION
from cloudcore.iam.principal import SourceIdentity
from cloudcore.iam.service_roles import PassedRole, RoleRefused, RoleSession, service_crn
from cloudcore.identity.rights.assume_role import issue_token, new_credential
from cloudcore.identity.rights.role_trust import trusts_service
from cloudcore.identity.rows import roles, sessions
from cloudcore.identity.rows.roles import ROLES, AssumableRole
from cloudcore.identity.rows.sessions import Session
from cloudcore.identity.services import roles as platform_roles
from cloudcore.identity.tokens.access_tokens import AccessTokens, clamp_duration, end_after
from cloudcore.keyring import Keyring
from cloudcore.resource_references import Authorize


@dataclass(frozen=True, slots=True)
class SessionsOfService:
    """The `ServiceRoles` of one service."""

    service: str
    database: Database
    clock: Clock
    new_id: Callable[[], str]
    keyring: Keyring
    tokens: AccessTokens
    auditor: Auditor

    def resolve(
        self, tx: Connection, account_id: str, field: str, value: str, authorize: Authorize
    ) -> PassedRole:
        """Return the role that a request names, if it trusts the service; see `ServiceRoles`."""
        found = ROLES.resolve(tx, account_id, field, value, authorize)
        role = roles.lock_role(tx, found.id)
        if platform_roles.service_of(found.name) is not None or role is None:
            raise invalid_field(field, f"{found.name} is the platform's own", "platform_owned")
        if not trusts_service(role, self.service, self.clock()):
            raise invalid_field(field, _why_not(role, self.service), "not_trusted")
        return PassedRole(found.id, found.name)

    def name_of(self, tx: Connection, account_id: str, role_id: str) -> str | None:
        """Return the name of a role; None if it was deleted."""
        found = ROLES.find(tx, account_id, role_id)
        return None if found is None else found.name

    async def begin(
        self,
        account_id: str,
        role_id: str,
        name: str,
        seconds: int = 3600,
        *,
        is_wanted: Callable[[Connection], bool] = lambda _tx: True,
    ) -> RoleSession:
        """Begin a session of a role under a name; see `ServiceRoles`."""
        now, sid = self.clock(), self.new_id()
        credential = new_credential(self.keyring, sid)
        source = SourceIdentity(service_crn(self.service), self.service, name)

        def add(tx: Connection) -> tuple[AssumableRole, Session]:
            if not is_wanted(tx):
                raise RoleRefused(f"{name} is gone")
            role = self._role(tx, account_id, role_id, now)
            session = Session(
                id=sid,
                kind="role",
                created_at=now,
                expires_at=end_after(clamp_duration(seconds, role.max_session_seconds), now),
                role_id=role.id,
                source_crn=source.crn,
                session_name=name,
                first_source=source.stored(),
                **credential.columns,
            )
            if not sessions.has_open_of_service(tx, session, now):
                self._record(tx, role, source, now)  # only the first: renewals would fill the log
            sessions.add_session(tx, session)
            return role, session

        role, session = await self.database.write(add)
        return RoleSession(
            id=sid,
            access_token=issue_token(
                self.tokens, role, self.new_id(), sid, session.expires_at, now
            ),
            access_key_id=credential.access_key_id,
            secret_access_key=credential.secret,
            session_token=credential.session_token,
            began_at=now,
            expires_at=session.expires_at,
            account_id=account_id,
            account_handle=role.handle,
            role_id=role.id,
        )

    async def live(self, session_ids: Sequence[str]) -> Collection[str]:
        """Return those of `session_ids` whose sessions are neither expired nor revoked."""
        return await self.database.read(sessions.find_open, session_ids, self.clock())

    def end(self, tx: Connection, account_id: str, name: str, now: int) -> None:
        """Revoke all sessions that the service began under this name."""
        sessions.revoke_sessions_of_service(tx, account_id, service_crn(self.service), name, now)

    def platform_role(
        self, tx: Connection, account_id: str, name: str, policy: Mapping[str, Any], now: int
    ) -> str:
        """Return the id of the service's own role in an account; create it if it is missing."""
        of = self.service, account_id, name
        return platform_roles.put_platform_role(tx, *of, policy, self.new_id, now)

    def remove_platform_role(self, tx: Connection, account_id: str, role_id: str) -> None:
        """Delete a role that `platform_role` made, with its policy and sessions, if it exists."""
        platform_roles.remove_platform_role(tx, self.service, account_id, role_id)

    def _role(self, tx: Connection, account_id: str, role_id: str, now: int) -> AssumableRole:
        """Return a role, locked until `tx` ends; raise `RoleRefused` if it cannot be used."""
        role = roles.lock_role(tx, role_id)
        if role is None or role.account_id != account_id:
            raise RoleRefused("the role was deleted")
        if not trusts_service(role, self.service, now):
            raise RoleRefused(_why_not(role, self.service))
        if role.account_status != "active":
            raise RoleRefused("the account is suspended")
        return role

    def _record(
        self, tx: Connection, role: AssumableRole, source: SourceIdentity, now: int
    ) -> None:
        self.auditor.record(
            tx,
            AuditEvent(
                id=self.new_id(),
                owner_id=role.account_id,
                occurred_at=now,
                action=TRUST_ACTION,
                resources=(role.crn,),
                principal=source.crn,
                source=source,
                client=None,
                details={"session_name": source.session_name},
            ),
        )


def _why_not(role: AssumableRole, service: str) -> str:
    return f"the trust policy of {role.name} does not allow {service_crn(service)}"
