"""Adapters between families: topics for event rules, certificates for database servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography import x509

from cloudcore.certificate.authority import pem
from cloudcore.certificate.embedded import EmbeddedAuthority, list_authorities
from cloudcore.databases.needs import ServerCertificate
from cloudcore.db.base import Connection, Database
from cloudcore.key_pairs import key_pem, new_private_key, signing_request
from cloudcore.notifications.topic import TopicMissing
from cloudcore.notifications.topics import ROWS, states_of
from cloudcore.resource_references import Authorize
from registry.services.events import NamedTopic, TopicNotFound


def topic_states(
    region: str, tx: Connection, account_id: str, crns: Sequence[str]
) -> Mapping[str, NamedTopic]:
    """Map each CRN to the topic's id; if the topic is missing, to counts of its waiting events."""
    found = states_of(tx, account_id, region, crns)
    return {
        crn: NamedTopic(state.id)
        if state.missing is None
        else NamedTopic(
            None,
            state.missing.first_at,
            state.missing.last_at,
            state.missing.events - state.missing.dropped,
            state.missing.dropped,
        )
        for crn, state in found.items()
    }


def named_topic(
    region: str, tx: Connection, account_id: str, value: str, authorize: Authorize
) -> str:
    """Return the CRN of the topic that `value` in a request names: by name, id or CRN.

    Raise `TopicNotFound` if there is no such topic.
    """
    try:
        return ROWS.resolve(tx, account_id, region, "topic", value, authorize).crn
    except TopicMissing:
        raise TopicNotFound from None


class InstallAuthority:
    """Issues certificates for database servers; implements `ServerAuthority`."""

    def __init__(self, database: Database, embedded: EmbeddedAuthority) -> None:
        self._database = database
        self._embedded = embedded

    async def issue(self, names: Sequence[str]) -> ServerCertificate:
        """Issue a certificate with a new key for host names and IP addresses."""
        key = new_private_key("ecdsa-p256")
        chain = await self._embedded.issue(signing_request(key, names), names)
        found = await self._database.read(list_authorities)
        roots = (each.certificate for each in found if each.role == "root")
        return ServerCertificate(
            chain_pem=_pem(chain.certificate, *chain.issuers),
            key_pem=key_pem(key).decode(),
            ca_pem=_pem(*roots),
        )


def _pem(*certificates: bytes) -> str:
    return "".join(pem(x509.load_der_x509_certificate(each)) for each in certificates)
