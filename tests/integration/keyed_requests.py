"""Requests that succeed, for every operation that takes an ``Idempotency-Key``."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from cloudcore.certificate.family import CERTIFICATE
from cloudcore.jobs.runs import end_run, list_runs
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX
from registry.services import collector_runs as collection
from registry.services.blobs import rewrapping
from registry.services.lifecycle import runs
from tests import described
from tests.certificates import uploaded
from tests.integration.served_things import BALANCER, CLUSTER, MESSAGE
from tests.integration.served_world import Served
from tests.jobs import run_due

DOCUMENT: Final = {
    "version": "1",
    "statements": [{"effect": "allow", "actions": ["iam:GetRole"], "resources": ["*"]}],
}
RUNS: Final = ("/v1/repositories/{}/lifecycle-policy/runs", "/v1/garbage-collection/runs")


class Asked(NamedTuple):
    """A request that succeeds."""

    token: str
    body: Any = None
    path: str = ""


async def push_index(served: Served) -> str:
    """Push an index without children, and return its digest."""
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}).encode()
    digest = str(digest_of(body))
    bearer = await served.bearer(served.acme, "repository:acme/app:push")
    path, kind = f"/v2/acme/app/manifests/{digest}", {"Content-Type": OCI_INDEX}
    answer = await served.ask("PUT", path, body, token=bearer, headers=kind)
    assert answer.status_code == 201, answer.text
    return digest


async def asked(served: Served) -> dict[str, Asked]:
    """Return a request for each operation, in an order in which all of them succeed."""
    acme = served.acme
    program, owner = acme.program_token, acme.person_token
    guest, guest_token = await served.add_person("guest")
    invitations = f"/v1/organizations/{acme.organization_id}/invitations"
    invited = await served.make(invitations, {"email": guest.email}, token=owner)
    trust = {"effect": "allow", "principals": [acme.account_id]}
    topic = f"crn:notifications:local:{acme.account_id}:topic/images"
    made = await served.make("/v1/repositories", {"name": "gone"}, token=program)
    gone = f"/v1/repositories/{made['id']}"
    assert (await served.ask("DELETE", gone, token=program)).status_code == 204
    repository = f"/v1/repositories/{acme.ids['/v1/repositories/{}']}"
    tag = acme.ids["/v1/repositories/{}/tags/{}"]
    pin = f"{repository}/images/{acme.digest}/pins/{tag}"
    assert (await served.ask("DELETE", pin, token=program)).status_code == 204
    index = await push_index(served)
    disabled = await served.make("/v1/keys", {"name": "disabled"}, token=program)
    pending = await served.make("/v1/keys", {"name": "pending"}, token=program)
    going = f"/v1/keys/{pending['id']}"
    assert (await served.ask("DELETE", going, token=program)).status_code == 202
    upload = uploaded("up.example.com", served.clock())
    own = await served.make("/v1/certificates/upload", {"name": "own", **upload}, token=program)
    web = {"name": "exported", "domains": ["exported.granted.test"]}
    exported = (await served.ask("POST", "/v1/certificates", web, token=program)).json()
    await run_due(
        served.database, list(CERTIFICATE.runtime.job_kinds(served.certificates)), served.clock
    )
    exporting = f"/v1/certificates/{exported['certificate']['id']}/export-private-key"
    return {
        "/v1/repositories": Asked(program, {"name": "new"}),
        "/v1/repositories/{}/restore": Asked(program, path=f"{gone}/restore"),
        "/v1/repositories/{}/lifecycle-policy/runs": Asked(program),
        "/v1/garbage-collection/runs": Asked(program),
        "/v1/repositories/{}/encryption-binding/rewrap": Asked(program),
        "/v1/repositories/{}/images/batch-delete": Asked(program, {"tags": [tag]}),
        "/v1/repositories/{}/images/{}/delete-with-children": Asked(
            program, {}, path=f"{repository}/images/{index}/delete-with-children"
        ),
        "/v1/repositories/{}/tags/{}/restore": Asked(program),
        "/v1/repositories/{}/images/restore": Asked(program, {"digests": [acme.digest]}),
        "/v1/keys": Asked(program, {"name": "new"}),
        "/v1/keys/{}/enable": Asked(program),
        "/v1/keys/{}/disable": Asked(program, path=f"/v1/keys/{disabled['id']}/disable"),
        "/v1/keys/{}/cancel-deletion": Asked(program, path=f"{going}/cancel-deletion"),
        "/v1/keys/{}/rotate": Asked(program),
        "/v1/topics/{}/messages": Asked(program, {"message": "new"}),
        "/v1/topics/{}/subscriptions": Asked(
            program, {"protocol": "http", "endpoint": "http://192.0.32.7/new"}
        ),
        "/v1/topics/{}/subscriptions/{}/signing-secret/rotate": Asked(program),
        "/v1/topics/{}/subscriptions/{}/resend-confirmation": Asked(program),
        "/v1/instance-pools": Asked(program, {"name": "new", "image": "web:1"}),
        "/v1/clusters": Asked(
            program, {**CLUSTER, "name": "new", "bucket": acme.ids["/v1/buckets/{}"]}
        ),
        "/v1/clusters/{}/reset-password": Asked(program),
        "/v1/clusters/{}/backups": Asked(program, {"kind": "incremental"}),
        "/v1/clusters/{}/backups/{}/verify": Asked(program),
        "/v1/clusters/{}/backups/{}/restore": Asked(program, {"name": "restored"}),
        "/v1/clusters/{}/restore": Asked(
            program,
            {"name": "again", "backup": served.acme.ids["/v1/clusters/{}/backups/{}"]},
        ),
        "/v1/clusters/{}/stop": Asked(program),
        "/v1/clusters/{}/start": Asked(program),
        "/v1/certificates": Asked(program, {"name": "new", "domains": ["new.granted.test"]}),
        "/v1/certificates/upload": Asked(program, {"name": "up", **upload}),
        "/v1/load-balancers": Asked(program, {**BALANCER, "name": "new"}),
        "/v1/certificates/{}/revoke": Asked(program, path=f"/v1/certificates/{own['id']}/revoke"),
        "/v1/certificates/{}/challenges/recheck": Asked(program),
        "/v1/certificates/{}/export-private-key": Asked(program, path=exporting),
        **{path: Asked(program, new) for path, new in described.samples(described.NEW).items()},
        "/v1/internet-gateways/{}/attach": Asked(program, {"vpc": "vpc-0"}),
        "/v1/internet-gateways/{}/detach": Asked(program),
        "/v1/payment-methods": Asked(program, {"type": "card", "token": "tok_amex"}),
        "/v1/invoices/{}/pay": Asked(program),
        "/v1/dedicated-ips": Asked(program, {}),
        "/v1/dedicated-ips/{}/pause": Asked(program),
        "/v1/dedicated-ips/{}/resume": Asked(program),
        "/v1/identities/{}/verify": Asked(program),
        "/v1/messages": Asked(program, MESSAGE),
        "/v1/queues/{}/purge": Asked(program),
        "/v1/queues/{}/messages": Asked(program, {"body": "x"}),
        "/v1/buckets": Asked(program, {"name": "new-bucket"}),
        "/v1/buckets/{}/multipart-uploads": Asked(program, {"key": "new"}),
        "/v1/event-rules": Asked(program, {"topic": topic, "event_types": ["registry.tag.*"]}),
        "/v1/pull-through-cache-rules": Asked(
            program, {"prefix": "quay", "upstream_url": "https://quay.example.com"}
        ),
        "/v1/organizations": Asked(owner, {"name": "New"}),
        "/v1/organizations/{}/invitations": Asked(owner, {"email": "new@example.org"}),
        "/v1/organizations/{}/identity-providers": Asked(
            owner, {"name": "New", "issuer": "https://login.example.net", "client_id": "x"}
        ),
        "/v1/roles/{}/group-assignments": Asked(
            program,
            {
                "identity_provider": acme.ids["/v1/organizations/{}/identity-providers/{}"],
                "group": "operators",
            },
        ),
        "/v1/organizations/{}/accept": Asked(guest_token, {"code": invited["code"]}),
        "/v1/organizations/{}/switch": Asked(guest_token),
        "/v1/accounts": Asked(owner, {"handle": "new", "organization": acme.organization_id}),
        "/v1/users": Asked(
            owner, {"email": "new@example.org", "organization": acme.organization_id}
        ),
        "/v1/users/{}/reset-password": Asked(owner),
        "/v1/users/me/container-passwords": Asked(
            owner, {"name": "new", "role": f"crn:iam::{acme.account_id}:role/admin"}
        ),
        "/v1/service-accounts": Asked(program, {"name": "new"}),
        "/v1/service-accounts/{}/access-keys": Asked(program, {}),
        "/v1/roles": Asked(
            program, {"name": "new", "trust_policy": {"version": "1", "statements": [trust]}}
        ),
        "/v1/roles/{}/assignments": Asked(program, {"user": acme.person.email}),
        "/v1/policies": Asked(program, {"name": "new", "document": DOCUMENT}),
        "/v1/policies/{}/attachments": Asked(program, {"role": "role"}),
    }


async def end_runs(served: Served) -> None:
    """End the runs under way, so that a request without a key would start another."""
    acme = served.acme
    repository = acme.ids["/v1/repositories/{}"]
    kinds = (
        (collection.KIND, acme.account_id),
        (runs.KIND, repository),
        (rewrapping.KIND, repository),
    )
    for kind, scope_id in kinds:
        for run in await served.database.read(list_runs, kind, scope_id, "", 9):
            await served.database.write(end_run, run.id, served.clock())
