"""No statement touches a tenant's table without saying whose rows it means.

What a statement is tied by is read off its construct (`statement_scope`). Those keyed by an id
alone are believed here because `test_isolation_operations` shows that no foreign id reaches them.
"""

from __future__ import annotations

from typing import Final

import pytest
from sqlalchemy import BindParameter, bindparam, select

from cloudcore.db.rows import Sweep
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts, policies
from registry.metadata.tables import manifests, repositories, tags
from tests.integration.statement_scope import (
    Scopes,
    all_statements,
    classified_tables,
    is_of_a_tenant,
    makers,
)

PLATFORMS: Final = {
    "registry.metadata.collector.audit": "fsck reads everything; no request does",
    "registry.metadata.collector.erasure": "deleted keys, whosesoever; no request's",
    "registry.metadata.collector.wrap_audit": "fsck reads everything; no request does",
    "registry.metadata.collector.scrub": "the scrub reads everything; no request does",
    "cloudcore.storage.pieces.recounts": "fsck reads everything; no request does",
    "registry.metadata.metrics": "the operator's metrics; no request's",
    "cloudcore.jobs.dead_holders": "what dead workers held, whosesoever it is; no request's",
    "cloudcore.jobs.metrics": "the operator's metrics; no request's",
    "registry.metadata.collector.generations": "is the database the blobs'? no request's",
    "cloudcore.jobs.queue": "the worker takes what is due, whosesoever it is; no request's",
}
"""Modules whose statements belong to the platform itself."""

LOOSE: Final = {
    "cloudcore.kms.rows._COUNT_EACH": "a sample of all; no request's",
    "cloudcore.storage.bucket_rows._BY_ACCOUNT": "a sample of all; no request's",
    "registry.metadata.storage_usage._SUMS": "a sample of all; no request's",
    "cloudcore.identity.rows.accounts._IDS": "handles in a policy become ids; they are public",
    "cloudcore.identity.rows.accounts._LIST": "the operator's command on the host",
    "cloudcore.identity.rows.roles._FIND_NAMED": "roles of others may be assumed; `:account`",
    "cloudcore.identity.rows.policies._FIND_TOTALS": "by a principal's id, in either column",
    "cloudcore.identity.rows.issued_tokens._FIND_LOGIN": "by the hash of a secret",
    "cloudcore.kms.rows._LIST_DUE": "a sweep of what is due",
    "cloudcore.kms.rows._LIST_WITHOUT_PLATFORM": "once at the start, for all accounts",
    "registry.metadata.pull_through.cached_images._ALL": "the chore of all rules; no request's",
    "registry.metadata.blobs.inline._DROP_QUARANTINED": "of a restored backup, all of it",
    "registry.metadata.blobs.inline._OBJECTS": "of a backup, all of it",
    "registry.metadata.collector.plain_objects._ESTIMATE": "the operator's metrics; no request's",
    "registry.metadata.collector.plain_objects._NEXT": "the seal run is over all; no request's",
    "registry.metadata.collector.plain_objects._TOTALS": "the operator's command on the host",
    "registry.metadata.blobs.inline._STRAYS": "fsck: what belongs to nobody",
    "registry.metadata.repositories.repository._COUNT_MORE": "limits of the repository's account",
    "registry.metadata.quotas._ACCOUNTS": "fsck and the daily recount; no request's",
    "cloudcore.jobs.outbox._MARK": "by the ids of events read for one account before",
    "registry.metadata.tags.deleted._EXPIRED": "a sweep of what is over",
    "registry.metadata.collector.collection._DUE": "a sweep of what is due",
    "registry.metadata.tags.prefix_index._ALL": "the last event of the repository up to a place",
    "registry.metadata.tags.prefix_index._LAST": "the last event of the repository up to a place",
    "registry.metadata.logins._FIND_BY_PASSWORD": "by the hash of a secret",
    "registry.metadata.repositories.daily_usage._FORGET_GROWTH": "a sweep of all; no request's",
    "registry.metadata.repositories.daily_usage._MEASURE": "a sweep of all; no request's",
    "registry.metadata.repositories.daily_usage._MEASURE_GROWTH": "a sweep of all; no request's",
    "registry.metadata.repositories.daily_usage._NEXT": "a sweep of all; no request's",
    "registry.metadata.repositories.daily_usage._SUMS": "a sweep of all; no request's",
    "registry.metadata.repositories.stale._FORGET": "a sweep of all; no request's",
    "registry.metadata.repositories.stale._NOTE": "a sweep of all; no request's",
    "registry.metadata.repositories.search_index._TAKE": "a sweep of what is not indexed",
    "registry.metadata.repositories.deleted._LIST_PURGED": "a sweep of what was deleted",
    "registry.metadata.lifecycle_policies._DUE": "a sweep of what is due",
    "registry.metadata.tags.history._FORGET": "a sweep of what is over",
    "registry.metadata.tags.history._OLDEST": "a sweep of what is over",
    "registry.metadata.images.tombstones._REPOSITORIES_OF_EXPIRED": "a sweep of what is over",
    "cloudcore.notifications.subscriptions._LOCK_CONFIRMED_BY": "by the hash of a secret",
    "cloudcore.email.sender_rows._LIST_DUE": "a sweep of what is due; no request's",
    "cloudcore.email.sender_rows._LOCK_CONFIRMED_BY": "by the hash of a secret",
    "cloudcore.compute.rows._CPU_BY_ACCOUNT": "a sample of all; no request's",
    "cloudcore.compute.rows._MEMORY_BY_ACCOUNT": "a sample of all; no request's",
    "cloudcore.compute.rows.INSTANCES_ON[on_node]": "what a machine looks after; no request's",
    "cloudcore.compute.rows.POOLS_ON[on_node]": "what a machine looks after; no request's",
    "cloudcore.databases.backups.rows._DUE": "which schedules are due; no request's",
    "cloudcore.databases.backups.rows._STORED": "a sample of all; no request's",
    "cloudcore.databases.backups.rows._VERIFYING": "what a machine looks after; no request's",
    "cloudcore.databases.clusters.rows._CPU_BY_ACCOUNT": "a sample of all; no request's",
    "cloudcore.databases.clusters.rows._DUE": "what is looked at next; no request's",
    "cloudcore.databases.clusters.rows._MEMORY_BY_ACCOUNT": "a sample of all; no request's",
    "cloudcore.databases.clusters.rows.CLUSTERS_ON[on_node]": "what a machine looks after",
    "cloudcore.databases.clusters.rows._PORTS": "which ports are taken, and not by whom",
    "cloudcore.network.rows.VPCS_ON[on_node]": "what a machine looks after; no request's",
    "cloudcore.loadbalancer.rows._COUNTED": "what each account is billed for; no request's",
    "cloudcore.loadbalancer.rows.ON_NODE[on_node]": "what a machine looks after; no request's",
    "cloudcore.loadbalancer.rows._TAKEN": "which addresses are taken, and not by whom",
    "cloudcore.certificate.rows._LIST_ENDING": "a sweep of what is over soon; no request's",
    "cloudcore.certificate.rows._LIST_OVER": "a sweep of what is over; no request's",
    "cloudcore.certificate.rows._LIST_RENEWED": "a sweep of what is due; no request's",
    "cloudcore.queue.queues._LIST_LIVE": "a sweep of all; no request's",
    "cloudcore.queue.queues._LIST_DELETED": "a sweep of what was deleted",
    "cloudcore.storage.bucket_rows._FIND_PUBLIC": "a preflight, which nobody signs; gives CORS",
    "cloudcore.storage.pieces.rows._LIST_CONDEMNED": "a sweep of what is nobody's",
    **{
        f"{rows}[{statement}]": "the scrub and backups read everything; no request does"
        for rows in (
            "cloudcore.storage.pieces.rows.PIECE_ROWS",
            "registry.metadata.blobs.objects.BLOB_ROWS",
        )
        for statement in ("due", "all", "totals", "count_stored", "list_stored")
    },
    "cloudcore.storage.pieces.keys._CLOSED_KEY": "a sweep of what deleted keys sealed",
    "cloudcore.storage.upload_rows._LIST_ABANDONED": "a sweep of what is over",
    "registry.metadata.blobs.uploads._EXPIRED": "a sweep of what is over",
    "cloudcore.email.sender_rows._TAKEN": "an address is one account's, whoever asks",
    "cloudcore.email.sender_rows._OTHERS": "the operator is told; no request's",
    "cloudcore.network.rows._TAKEN": "a global prefix is one VPC's, whoever asks",
}
"""Statements that nothing ties to one thing, each with its reason."""

NOT_OF_ACCOUNTS: Final = {
    "organizations": "owns accounts; found by membership",
    "memberships": "of persons, by organization and person",
    "invitations": "of an organization, by address",
    "users": "persons are in no account",
    "identity_providers": "of an organization",
    "provider_subjects": "by an identity provider",
    "group_assignments": "by a role found in its account, or by an identity provider",
    "upstream_states": "by a rule found in its account, or of a repository under it",
    "upstream_faults": "by a rule found in its account, or of a repository under it",
    "pull_through_stats": "by a rule found in its account, or by what was pulled",
    "spent_states": "by the hash of a secret",
    "deleted_missing_blobs": "by a deleted manifest, which is a repository's",
    "upstream_lookups": "by a rule found in its account",
    "upstream_tag_lists": "by a rule found in its account",
    "deleted_manifest_children": "by a deleted manifest, which is a repository's",
    "role_assignments": "by a role found in its account, or by a person",
    "sessions": "by the id that a verified token carries",
    "refresh_tokens": "by the hash of a secret",
    "auth_codes": "by the hash of a secret",
    "container_passwords": "of a person, or by the id in a password that is compared",
    "revoked_tokens": "by the id that a verified token carries",
    "signing_keys": "the platform's",
    "idempotency_records": "by principal",
    "rate_windows": "by the subject that is counted",
    "store_generations": "the platform's",
    "schedules": "the platform's",
    "ended_uploads": "by the id of a session, which names its repository by a MAC",
    "certificate_authorities": "the platform's, and public but for their sealed keys",
    "certificate_revocations": "the platform's, and public",
    "certificate_texts": "by a certificate found in its account; they stand in DNS",
    "certificate_users": "by a certificate found in its account",
    "inline_bytes": "by the id of stored bytes, which the row of an object names",
    "usage_samples": "by a SKU",
    "payment_methods": "by organization",
    "payment_customers": "by organization",
    "invoices": "by organization",
    "invoice_charges": "by organization, or by an id that was found under it",
    "embedded_charges": "by the id of a charge, which is found under its organization",
    "closed_months": "the platform's",
    "nodes": "the platform's",
    "fleet_settings": "the platform's",
    "network_interface_groups": "by an interface or a group found in its account",
    "subnet_free_addresses": "by a subnet found in its account",
    "search_terms": "by a name, which is an account's",
    "quota_defaults": "of the install, for every account alike",
}
"""Tables without an account; what their rows hang on."""


def test_statements_are_found() -> None:
    """All of them: what makes a statement in a function gives it to a name of a module."""
    assert len(all_statements()) > 180
    found = makers()
    by_description = found.pop("cloudcore.resources.rows._statements")
    assert by_description == "dict[str, Statement]"
    # The object is what is named.
    for maker in ("quotas.limits", "objects.stored_rows"):
        assert found.pop(f"cloudcore.{maker}.__init__") == "None"
    assert set(found.values()) - {by_description} == {"Statement"}, found


def test_every_table_is_a_tenants_or_is_said_not_to_be() -> None:
    ours, others = classified_tables()
    assert others == set(NOT_OF_ACCOUNTS)
    assert len(ours) >= 20


def test_every_statement_names_its_tenant() -> None:
    """0 statements on a tenant's table without its account, or an id found under it."""
    loose, scoped, keyed = {}, 0, 0
    for name, statement in all_statements().items():
        scopes = Scopes(statement)
        if name.rpartition(".")[0] in PLATFORMS or isinstance(statement, Sweep):
            continue
        if scopes.loose():
            loose[name] = sorted(scopes.loose())
        elif scopes.unscoped():
            keyed += 1
        elif any(map(is_of_a_tenant, scopes.tables())):
            scoped += 1
    assert {name: tables for name, tables in loose.items() if name not in LOOSE} == {}
    assert set(LOOSE) - set(loose) == set(), "the list names what needs no exception"
    assert scoped > 70
    assert keyed < scoped


_name: Final[BindParameter[str]] = bindparam("name")
_id: Final[BindParameter[str]] = bindparam("id")
_of_account = repositories.c.account_id == bindparam("account_id")
SEEDED: Final = {
    "a name alone": select(repositories.c.id).where(repositories.c.name == _name),
    "the account in one branch of a choice": select(repositories.c.id).where(
        (repositories.c.name == _name) | _of_account
    ),
    "the account of another table, not joined": select(manifests.c.id).where(
        _of_account, manifests.c.digest == _name
    ),
    "joined by something that is no key": select(manifests.c.id)
    .join(tags, tags.c.pushed_digest == manifests.c.digest)
    .where(tags.c.repository_id == bindparam("repository_id")),
    "an update of all": policies.update().values(name=_name),
    "an account that is not this one": select(policies.c.id).where(
        policies.c.account_id != bindparam("account_id")
    ),
    "a query within": select(accounts.c.id).where(
        accounts.c.id == bindparam("account_id"),
        select(policies.c.id).where(policies.c.name == _name).exists(),
    ),
}


@pytest.mark.parametrize("leak", SEEDED)
def test_a_statement_that_forgot_its_tenant_is_found(leak: str) -> None:
    """The check of the check."""
    assert Scopes(Statement(SEEDED[leak])).loose()


def test_an_id_alone_is_keyed_and_not_scoped() -> None:
    scopes = Scopes(Statement(select(policies.c.name).where(policies.c.id == _id)))
    assert scopes.unscoped() == {"policies"}
    assert not scopes.loose()
