"""The operations of the specification as data, to compare the routes with in both directions.

What is described as a resource has its standard methods from there (`tests.described`). One line
another operation: method, path, action (``-`` where none is needed), statuses of success, and
what else is true of it:

    key       it takes an ``Idempotency-Key``
    public    anyone may come
    limited   requests are counted (part 8, "Rate limiting")
    later     it is not built yet; its route must not exist
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cloudcore.web.openapi import statuses
from cloudcore.web.route_spec import RouteSpec
from tests import described

KERNEL: Final = """
GET    /healthz                                     -                         200 public
GET    /readyz                                      -                         200 public
GET    /v1/openapi.json                             -                         200 public
GET    /v1/reference                                -                         200 public
"""

QUOTAS: Final = """
GET    /v1/quotas                                   ListQuotas                200
GET    /v1/quotas/{name}                            GetQuota                  200
PUT    /v1/quotas/{name}                            SetQuota                  200
DELETE /v1/quotas/{name}                            ResetQuota                204
"""

REGISTRY: Final = """
POST   /v1/repositories                             CreateRepository          201 key
GET    /v1/repositories                             DescribeRepositories      200
GET    /v1/repositories/{id}                        DescribeRepositories      200
PATCH  /v1/repositories/{id}                        UpdateRepository          200
DELETE /v1/repositories/{id}                        DeleteRepository          204
GET    /v1/repositories/{id}/images                 DescribeImages            200
GET    /v1/repositories/{id}/images/{digest}        DescribeImages            200
GET    /v1/repositories/{id}/images/{digest}/manifest  DescribeImages         200
GET    /v1/repositories/{id}/images/{digest}/attachment  PullImage            200
DELETE /v1/repositories/{id}/images/{digest}        DeleteImage               200,204
POST   /v1/repositories/{id}/images/batch-delete    DeleteImage               200 key
GET    /v1/repositories/{id}/images/{digest}/referrers  DescribeImages        200
GET    /v1/repositories/{id}/tags                   DescribeImages            200
GET    /v1/repositories/{id}/tags/{tag}             DescribeImages            200
PUT    /v1/repositories/{id}/tags/{tag}             PushImage             200,201
DELETE /v1/repositories/{id}/tags/{tag}             DeleteImage               204
GET    /v1/repositories/search                      DescribeRepositories      200
GET    /v1/repositories/stale                       DescribeRepositories      200
GET    /v1/repositories/{id}/allowed-actions        DescribeRepositories      200
GET    /v1/repositories/deleted                     DescribeRepositories      200
POST   /v1/repositories/{id}/restore                RestoreRepository         200 key
GET    /v1/repositories/{id}/images/deleted         DescribeImages            200
POST   /v1/repositories/{id}/images/restore         RestoreImage              200 key
GET    /v1/repositories/{id}/deleted-tags           DescribeImages            200
POST   /v1/repositories/{id}/tags/{tag}/restore     RestoreImage              200 key
GET    /v1/repositories/{id}/tags/{tag}/history     DescribeImages            200
GET    /v1/repositories/{id}/policy                 GetRepositoryPolicy       200
PUT    /v1/repositories/{id}/policy                 PutRepositoryPolicy       200
DELETE /v1/repositories/{id}/policy                 DeleteRepositoryPolicy    204
GET    /v1/repositories/{id}/lifecycle-policy       GetLifecyclePolicy        200
PUT    /v1/repositories/{id}/lifecycle-policy       PutLifecyclePolicy        200
DELETE /v1/repositories/{id}/lifecycle-policy       DeleteLifecyclePolicy     204
POST   /v1/repositories/{id}/lifecycle-policy/preview  GetLifecyclePolicy     200
POST   /v1/repositories/{id}/lifecycle-policy/runs  StartLifecycleRun         202 key
GET    /v1/repositories/{id}/lifecycle-policy/runs  GetLifecyclePolicy        200
GET    /v1/repositories/{id}/lifecycle-policy/runs/{run_id}  GetLifecyclePolicy  200
GET    /v1/encryption-binding                       GetEncryptionBinding      200
PUT    /v1/encryption-binding                       PutEncryptionBinding      200
DELETE /v1/encryption-binding                       DeleteEncryptionBinding   204
GET    /v1/encryption-bindings                      GetEncryptionBinding      200
GET    /v1/key-usage/{id}                           DescribeKeyUsage          200
GET    /v1/repositories/{id}/encryption-binding     GetEncryptionBinding      200
PUT    /v1/repositories/{id}/encryption-binding     PutEncryptionBinding      200
DELETE /v1/repositories/{id}/encryption-binding     DeleteEncryptionBinding   204
GET    /v1/repositories/{id}/encryption-bindings    GetEncryptionBinding      200
POST   /v1/repositories/{id}/encryption-binding/rewrap  RewrapRepository      202 key
GET    /v1/repositories/{id}/encryption-binding/rewrap/runs  GetEncryptionBinding  200
GET    /v1/repositories/{id}/encryption-binding/rewrap/runs/{run_id}  GetEncryptionBinding  200
POST   /v1/pull-through-cache-rules                 CreatePullThroughCacheRule  201 key
GET    /v1/pull-through-cache-rules                 DescribePullThroughCacheRules  200
GET    /v1/pull-through-cache-rules/{id}            DescribePullThroughCacheRules  200
PATCH  /v1/pull-through-cache-rules/{id}            UpdatePullThroughCacheRule  200
DELETE /v1/pull-through-cache-rules/{id}            DeletePullThroughCacheRule  204
POST   /v1/pull-through-cache-rules/{id}/test       TestPullThroughCacheRule  200
GET    /v1/storage-usage                            DescribeStorageUsage      200
GET    /v1/storage-usage/history                    DescribeStorageUsage      200
GET    /v1/repositories/{id}/storage                DescribeRepositories      200
GET    /v1/repositories/{id}/images/{digest}/storage  DescribeImages          200
GET    /v1/repositories/{id}/images/{digest}/deletion-preview  DescribeImages  200
POST   /v1/repositories/{id}/images/{digest}/delete-with-children  DeleteImage  200 key
GET    /v1/repositories/{id}/images/{digest}/pins   DescribeImages            200
PUT    /v1/repositories/{id}/images/{digest}/pins/{name}  PutImagePin         200,201
DELETE /v1/repositories/{id}/images/{digest}/pins/{name}  DeleteImagePin      204
GET    /v1/registry-settings                        GetRegistrySettings       200
PATCH  /v1/registry-settings                        UpdateRegistrySettings    200
GET    /v1/garbage-collection                       DescribeGarbageCollection 200
POST   /v1/garbage-collection/runs                  StartGarbageCollection    202 key
GET    /v1/garbage-collection/runs                  DescribeGarbageCollection 200
GET    /v1/garbage-collection/runs/{run_id}         DescribeGarbageCollection 200
POST   /v1/event-rules                              PutEventRule              201 key
GET    /v1/event-rules                              DescribeEventRules        200
GET    /v1/event-rules/{id}                         DescribeEventRules        200
DELETE /v1/event-rules/{id}                         DeleteEventRule           204
POST   /v1/authorization-token                      GetAuthorizationToken     200
"""

IAM: Final = """
POST   /v1/oauth/token                              -                         200 public
POST   /v1/oauth/revoke                             -                         200 public
GET    /v1/oauth/authorize                          -                     200,303 public
POST   /v1/oauth/authorize                          -                     200,303 public
GET    /v1/oauth/authorize/provider                 -                         303 public
GET    /v1/oauth/authorize/callback/{provider_id}   -                     200,303 public
GET    /v1/jwks                                     -                         200 public
GET    /.well-known/oauth-authorization-server      -                         200 public
POST   /v1/assume-role                              -                         200
POST   /v1/organizations                            CreateOrganization        201 key
GET    /v1/organizations                            ListOrganizations         200
GET    /v1/organizations/{id}                       GetOrganization           200
PATCH  /v1/organizations/{id}                       UpdateOrganization        200
DELETE /v1/organizations/{id}                       DeleteOrganization        204
POST   /v1/organizations/{id}/invitations           InviteMember              201 key
GET    /v1/organizations/{id}/invitations           ListInvitations           200
DELETE /v1/organizations/{id}/invitations/{invitation_id}  RevokeInvitation   204
POST   /v1/organizations/{id}/identity-providers    CreateIdentityProvider    201 key
GET    /v1/organizations/{id}/identity-providers    ListIdentityProviders     200
GET    /v1/organizations/{id}/identity-providers/{provider_id}  GetIdentityProvider     200
PATCH  /v1/organizations/{id}/identity-providers/{provider_id}  UpdateIdentityProvider  200
DELETE /v1/organizations/{id}/identity-providers/{provider_id}  DeleteIdentityProvider  204
POST   /v1/organizations/{id}/accept                AcceptInvitation          200 key
POST   /v1/organizations/{id}/switch                SwitchOrganization        200 key
GET    /v1/organizations/{id}/members               ListMembers               200
PATCH  /v1/organizations/{id}/members/{user_id}     UpdateMember              200
DELETE /v1/organizations/{id}/members/{user_id}     RemoveMember              204
POST   /v1/accounts                                 CreateAccount             201 key
GET    /v1/accounts                                 ListAccounts              200
GET    /v1/accounts/{id}                            GetAccount                200
PATCH  /v1/accounts/{id}                            UpdateAccount             200
POST   /v1/users                                    CreateUser                201 key
GET    /v1/users                                    ListUsers                 200
GET    /v1/users/me                                 GetUser                   200
GET    /v1/users/me/roles                           GetUser                   200
PUT    /v1/users/me/password                        ChangePassword            204
POST   /v1/users/me/container-passwords             CreateContainerPassword   201 key
GET    /v1/users/me/container-passwords             ListContainerPasswords    200
GET    /v1/users/me/container-passwords/{password_id}  GetContainerPassword   200
DELETE /v1/users/me/container-passwords/{password_id}  DeleteContainerPassword  204
GET    /v1/users/{id}                               GetUser                   200
PATCH  /v1/users/{id}                               UpdateUser                200
POST   /v1/users/{id}/reset-password                ResetPassword             200 key
DELETE /v1/users/{id}                               DeleteUser                204
POST   /v1/service-accounts                         CreateServiceAccount      201 key
GET    /v1/service-accounts                         ListServiceAccounts       200
GET    /v1/service-accounts/{id}                    GetServiceAccount         200
PATCH  /v1/service-accounts/{id}                    UpdateServiceAccount      200
DELETE /v1/service-accounts/{id}                    DeleteServiceAccount      204
POST   /v1/service-accounts/{id}/access-keys        CreateAccessKey           201 key
GET    /v1/service-accounts/{id}/access-keys        ListAccessKeys            200
GET    /v1/service-accounts/{id}/access-keys/{key_id}  GetAccessKey           200
PATCH  /v1/service-accounts/{id}/access-keys/{key_id}  UpdateAccessKey        200
DELETE /v1/service-accounts/{id}/access-keys/{key_id}  DeleteAccessKey        204
POST   /v1/roles                                    CreateRole                201 key
GET    /v1/roles                                    ListRoles                 200
GET    /v1/roles/{id}                               GetRole                   200
PATCH  /v1/roles/{id}                               UpdateRole                200
DELETE /v1/roles/{id}                               DeleteRole                204
POST   /v1/roles/{id}/assignments                   AssignRole                201 key
GET    /v1/roles/{id}/assignments                   ListRoleAssignments       200
DELETE /v1/roles/{id}/assignments/{user_id}         UnassignRole              204
POST   /v1/roles/{id}/group-assignments             AssignRole                201 key
GET    /v1/roles/{id}/group-assignments             ListRoleAssignments       200
DELETE /v1/roles/{id}/group-assignments/{group_assignment_id}  UnassignRole   204
POST   /v1/policies                                 CreatePolicy              201 key
GET    /v1/policies                                 ListPolicies              200
GET    /v1/policies/{id}                            GetPolicy                 200
PATCH  /v1/policies/{id}                            UpdatePolicy              200
DELETE /v1/policies/{id}                            DeletePolicy              204
GET    /v1/policy-templates                         -                         200
GET    /v1/actions                                  -                         200
POST   /v1/allowed-actions                          -                         200
POST   /v1/policy-simulations                       SimulatePolicy            200
POST   /v1/policies/{id}/attachments                AttachPolicy              201 key
GET    /v1/policies/{id}/attachments                ListPolicyAttachments     200
DELETE /v1/policies/{id}/attachments/{attachment_id}  DetachPolicy            204
"""

AUDIT: Final = """
GET    /v1/audit-events                             ListAuditEvents           200
GET    /v1/audit-events/export                      ListAuditEvents           200
GET    /v1/audit-events/{id}                        GetAuditEvent             200
"""

KMS: Final = """
POST   /v1/keys                                     CreateKey                 201 key
DELETE /v1/keys/{key_id}                            ScheduleKeyDeletion       202
POST   /v1/keys/{key_id}/enable                     EnableKey                 200 key
POST   /v1/keys/{key_id}/disable                    DisableKey                200 key
POST   /v1/keys/{key_id}/cancel-deletion            CancelKeyDeletion         200 key
POST   /v1/keys/{key_id}/rotate                     RotateKey                 200 key
GET    /v1/keys/{key_id}/versions                   DescribeKeys              200
POST   /v1/keys/{key_id}/encrypt                    UseKey                    200
POST   /v1/keys/{key_id}/decrypt                    UseKey                    200
POST   /v1/keys/{key_id}/generate-data-key          UseKey                    200
"""

QUEUE: Final = """
GET    /v1/queues/{queue_id}                        GetQueue                  200
POST   /v1/queues/{queue_id}/purge                  PurgeQueue                200 key
POST   /v1/queues/{queue_id}/messages               SendMessage               201 key
POST   /v1/queues/{queue_id}/messages/lease         LeaseMessages             200
POST   /v1/queues/{queue_id}/messages/acknowledge   AcknowledgeMessages       200
POST   /v1/queues/{queue_id}/messages/extend        LeaseMessages             200
"""

EMAIL: Final = """
POST   /v1/dedicated-ips                            RequestDedicatedIP        201 key
POST   /v1/dedicated-ips/{dedicated_ip_id}/pause    PauseDedicatedIP          200 key
POST   /v1/dedicated-ips/{dedicated_ip_id}/resume   ResumeDedicatedIP         200 key
POST   /v1/identities/{identity_id}/verify          VerifyIdentity            202 key
GET    /v1/email-unsubscriptions                    -                         200 public
POST   /v1/email-unsubscriptions                    -                         200 public
GET    /v1/identity-confirmations                   -                         200 public
POST   /v1/identity-confirmations                   -                         200 public
DELETE /v1/templates/{template_id}                  DeleteTemplate            204
POST   /v1/templates/{template_id}/preview          PreviewTemplate           200
POST   /v1/messages                                 SendMessage               202 key
GET    /v1/messages/{message_id}                    GetMessage                200
"""
NETWORK: Final = """
GET    /v1/vpcs/{vpc_id}/reachability               GetVpc                    200
POST   /v1/internet-gateways/{internet_gateway_id}/attach  AttachInternetGateway  200 key
POST   /v1/internet-gateways/{internet_gateway_id}/detach  DetachInternetGateway  200 key
"""
STORAGE: Final = """
POST   /v1/buckets                                  CreateBucket              201 key
GET    /v1/buckets                                  ListBuckets               200
GET    /v1/buckets/{bucket}                         GetBucket                 200
PATCH  /v1/buckets/{bucket}                         UpdateBucket              200
DELETE /v1/buckets/{bucket}                         DeleteBucket              204
GET    /v1/buckets/{bucket}/cors                    GetBucketCORS             200
PUT    /v1/buckets/{bucket}/cors                    PutBucketCORS             200
DELETE /v1/buckets/{bucket}/cors                    PutBucketCORS             204
GET    /v1/buckets/{bucket}/objects                 ListObjects               200
GET    /v1/buckets/{bucket}/objects/{key}           GetObject                 200,206,304
PUT    /v1/buckets/{bucket}/objects/{key}           PutObject                 200
DELETE /v1/buckets/{bucket}/objects/{key}           DeleteObject              204
POST   /v1/buckets/{bucket}/multipart-uploads       PutObject                 201 key
GET    /v1/buckets/{bucket}/multipart-uploads       ListMultipartUploads      200
GET    /v1/buckets/{bucket}/multipart-uploads/{upload_id}  ListParts          200
DELETE /v1/buckets/{bucket}/multipart-uploads/{upload_id}  AbortMultipartUpload  204
GET    /v1/buckets/{bucket}/multipart-uploads/{upload_id}/parts  ListParts    200
PUT    /v1/buckets/{bucket}/multipart-uploads/{upload_id}/parts/{part_number}  PutObject  200
POST   /v1/buckets/{bucket}/multipart-uploads/{upload_id}/complete  PutObject  200
"""
BILLING: Final = """
GET    /v1/payment-methods                          ListPaymentMethods        200
POST   /v1/payment-methods                          CreatePaymentMethod       201 key
GET    /v1/payment-methods/{payment_method_id}      GetPaymentMethod          200
PATCH  /v1/payment-methods/{payment_method_id}      UpdatePaymentMethod       200
DELETE /v1/payment-methods/{payment_method_id}      DeletePaymentMethod       204
GET    /v1/invoices                                 ListInvoices              200
GET    /v1/invoices/{invoice_id}                    GetInvoice                200
POST   /v1/invoices/{invoice_id}/pay                PayInvoice                200 key
"""
CERTIFICATE: Final = """
POST   /v1/certificates                             CreateCertificate         202 key
POST   /v1/certificates/upload                      UploadCertificate         201 key
POST   /v1/certificates/{certificate_id}/revoke     RevokeCertificate         202 key
POST   /v1/certificates/{certificate_id}/challenges/recheck  RecheckChallenges  202 key
POST   /v1/certificates/{certificate_id}/export-private-key  ExportPrivateKey  200 key
GET    /v1/certificate-settings                     GetCertificateSettings    200
PATCH  /v1/certificate-settings                     UpdateCertificateSettings 200
GET    /v1/certificate-authorities/root             -                         200 public
GET    /v1/certificate-authorities/{authority_id}/certificate  -              200 public
GET    /v1/certificate-authorities/{authority_id}/revocation-list  -          200 public
"""
LOADBALANCER: Final = """
POST   /v1/load-balancers                           CreateLoadBalancer        202 key
PATCH  /v1/load-balancers/{id}                      UpdateLoadBalancer        200
DELETE /v1/load-balancers/{id}                      DeleteLoadBalancer        202
GET    /v1/load-balancers/{id}/metrics              GetLoadBalancerMetrics    200
"""
COMPUTE: Final = """
POST   /v1/instance-pools                           CreateInstancePool        202 key
PATCH  /v1/instance-pools/{instance_pool_id}        UpdateInstancePool        200
DELETE /v1/instance-pools/{instance_pool_id}        DeleteInstancePool        204
GET    /v1/instance-pools/{instance_pool_id}/instances  ListInstances         200
GET    /v1/instance-pools/{instance_pool_id}/instances/{instance_id}  GetInstance  200
GET    /v1/instance-pools/{instance_pool_id}/instances/{instance_id}/logs  GetInstanceLogs  200
"""
DATABASE: Final = """
POST   /v1/clusters                                 CreateCluster             202 key
DELETE /v1/clusters/{cluster_id}                    DeleteCluster             202
POST   /v1/clusters/{cluster_id}/start              StartCluster              202 key
POST   /v1/clusters/{cluster_id}/stop               StopCluster               202 key
POST   /v1/clusters/{cluster_id}/reset-password     ResetClusterPassword      202 key
POST   /v1/clusters/{cluster_id}/change-credentials  ChangeClusterCredentials  200
POST   /v1/clusters/{cluster_id}/restore            RestoreBackup             202 key
POST   /v1/clusters/{cluster_id}/backups            CreateBackup              202 key
GET    /v1/clusters/{cluster_id}/backups            ListBackups               200
GET    /v1/clusters/{cluster_id}/backups/{backup_id}  GetBackup               200
DELETE /v1/clusters/{cluster_id}/backups/{backup_id}  DeleteBackup            202
POST   /v1/clusters/{cluster_id}/backups/{backup_id}/verify  VerifyBackup     202 key
POST   /v1/clusters/{cluster_id}/backups/{backup_id}/restore  RestoreBackup   202 key
"""
NOTIFICATIONS: Final = """
DELETE /v1/topics/{topic_id}                        DeleteTopic               204
POST   /v1/topics/{topic_id}/messages               Publish                   202 key
POST   /v1/topics/{topic_id}/subscriptions          Subscribe                 201 key
GET    /v1/topics/{topic_id}/subscriptions          ListSubscriptions         200
GET    /v1/topics/{topic_id}/subscriptions/{id}  GetSubscription  200
PATCH  /v1/topics/{topic_id}/subscriptions/{id}  UpdateSubscription  200
DELETE /v1/topics/{topic_id}/subscriptions/{id}  DeleteSubscription  204
GET    /v1/topics/{topic_id}/subscriptions/{id}/signing-secret  GetSigningSecret  200
POST   /v1/topics/{topic_id}/subscriptions/{id}/signing-secret/rotate  RotateSigningSecret  200 key
POST   /v1/topics/{topic_id}/subscriptions/{id}/resend-confirmation  ResendConfirmation  202 key
POST   /v1/subscription-confirmations               -                         200 public
GET    /v1/subscription-confirmations/page          -                         200 public
POST   /v1/subscription-confirmations/page          -                         200 public
GET    /v1/unsubscriptions                          -                         200 public
POST   /v1/unsubscriptions                          -                         200 public
"""
METERING: Final = """
GET    /v1/usage                                    GetUsage                  200
"""
CATALOG: Final = """
GET    /v1/regions                                  -                     200,304 public limited
GET    /v1/prices                                   -                     200,304 public limited
"""

_MARKS: Final = frozenset({"key", "public", "limited", "later"})


class Operation(NamedTuple):
    """One operation."""

    family: str
    method: str
    path: str
    action: str | None
    success: frozenset[int]
    takes_key: bool = False
    is_public: bool = False
    is_limited: bool = False
    is_built: bool = True

    @property
    def place(self) -> str:
        """Return method and path, whatever the parameters are called."""
        return _place(self.method, self.path)


def parse(family: str, table: str) -> Iterator[Operation]:
    """Yield the operations of a family's table."""
    for line in table.strip().splitlines():
        method, path, action, success, *marks = line.split()
        assert _MARKS.issuperset(marks), line
        yield Operation(
            family,
            method,
            path,
            None if action == "-" else f"{family}:{action}",
            frozenset(map(int, success.split(","))),
            takes_key="key" in marks,
            is_public="public" in marks,
            is_limited="limited" in marks,
            is_built="later" not in marks,
        )


OPERATIONS: Final = tuple(
    operation
    for family, table in {
        "kernel": KERNEL,
        "registry": REGISTRY,
        "iam": IAM,
        "audit": AUDIT,
        "quotas": QUOTAS,
        "kms": KMS,
        "queue": QUEUE,
        "email": EMAIL,
        "network": NETWORK,
        "storage": STORAGE,
        "billing": BILLING,
        "certificate": CERTIFICATE,
        "loadbalancer": LOADBALANCER,
        "compute": COMPUTE,
        "database": DATABASE,
        "notifications": NOTIFICATIONS,
        "metering": METERING,
        "catalog": CATALOG,
    }.items()
    for operation in parse(family, table)
) + tuple(operation for family, line in described.operations() for operation in parse(family, line))


def differences(routes: Iterable[RouteSpec], operations: Iterable[Operation]) -> list[str]:
    """Return what routes and table do not agree on, sorted; nothing when they are the same."""
    wanted = {operation.place: operation for operation in operations if operation.is_built}
    found = {_place(spec.method, spec.path): spec for spec in routes}
    return sorted(
        [f"{place}: no route" for place in wanted.keys() - found.keys()]
        + [f"{place}: not in the table" for place in found.keys() - wanted.keys()]
        + [
            f"{place}: {difference}"
            for place in wanted.keys() & found.keys()
            for difference in _compare(wanted[place], found[place])
        ]
    )


def _compare(operation: Operation, spec: RouteSpec) -> Iterator[str]:
    success = frozenset(status for status in statuses(spec) if status < 400)
    for name, wanted, found in [
        ("action", operation.action, spec.action),
        ("success", sorted(operation.success), sorted(success)),
        ("key", operation.takes_key, spec.idempotent),
        ("public", operation.is_public, spec.public),
        ("limited", operation.is_limited, spec.rate_limited),
    ]:
        if wanted != found:
            yield f"{name} is {found}, not {wanted}"


def _place(method: str, path: str) -> str:
    return f"{method} {re.sub(r'{[^}]*}', '{}', path)}"
