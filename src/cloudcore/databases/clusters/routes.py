"""``/v1/clusters``: create, start, stop and delete database clusters; the rest is standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from litestar import Response, delete, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Struct, UnsetType, structs

from cloudcore.databases.archive.driver import RegisteredEndpoint
from cloudcore.databases.clusters import clusters
from cloudcore.databases.clusters.bodies import (
    GivenCredentials,
    GivenEndpoint,
    GivenSize,
    read_endpoint,
    with_credentials,
)
from cloudcore.databases.clusters.cluster import CLUSTER
from cloudcore.databases.clusters.clusters import METHODS
from cloudcore.databases.clusters.endpoints import EndpointUnreachable, server_version
from cloudcore.databases.clusters.states import seal_password
from cloudcore.databases.needs import DatabaseNeeds
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.resources.resource import DELETING
from cloudcore.resources.routes import custom_method
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody

if TYPE_CHECKING:

    class _Create(RequestBody):
        name: str

    ClusterRecord = ResponseBody
else:
    _Create = METHODS.bodies.create
    ClusterRecord = METHODS.bodies.record

_ONE: Final = CLUSTER.path_of_one


class CreateDatabaseCluster(_Create, kw_only=True):
    """A new database cluster: one that runs elsewhere (`endpoint`), or is run here (`size`)."""

    endpoint: GivenEndpoint | None = None
    size: GivenSize | None = None


class NewCluster(ResponseBody):
    """A new cluster, and the password of its owner if it is run here."""

    cluster: ClusterRecord
    password: str | UnsetType = UNSET
    """Of ``connection.username``; it is shown this once."""


class NewPassword(ResponseBody):
    """The new password of a cluster's owner."""

    password: str
    """It is shown this once."""


class DeleteQuery(Struct, kw_only=True):
    """The query of a deletion: whether backups are deleted too."""

    cascade: bool = False
    """Delete its backups too."""


@post(
    CLUSTER.path,
    status_code=202,
    opt={"action": CLUSTER.action("create"), "idempotent": True, "statuses": (404, 409)},
)
async def create_cluster(
    data: JSONBody[CreateDatabaseCluster], ctx: Context, needs: Needs[DatabaseNeeds]
) -> Reply[NewCluster]:
    """Create a database cluster, which becomes active some time later. An account has at most 50.

    If a bucket is named, the caller needs the right to see it, and to write objects below
    ``entrepot/`` in it. It is 409 if no machine runs servers.
    """
    values = METHODS.given(data)
    endpoint, size = values.pop("endpoint"), values.pop("size")
    if (endpoint is None) == (size is None):
        words = "a cluster has either an endpoint, if it runs elsewhere, or a size"
        raise InvalidInput(words, field="endpoint", reason="malformed")
    new, password = METHODS.new(ctx, values), None
    if endpoint is not None:
        new = structs.replace(
            new,
            type="registered",
            endpoint=read_endpoint(endpoint, needs.terms.networks),
            secret=seal_password(needs.keyring, new.id, endpoint.password),
            check_at=new.created_at,
        )
    else:
        password = clusters.new_password()
        new = structs.replace(
            new, secret=seal_password(needs.keyring, new.id, password), **structs.asdict(size)
        )

    def wrap(made: Any) -> NewCluster:  # noqa: ANN401 - a cluster
        record = METHODS.bodies.shown(made)
        return NewCluster(cluster=record, password=UNSET if password is None else password)

    terms, right_to, location = needs.terms, ctx.right_to, METHODS.location
    return await ctx.commit(clusters.create, new, terms, right_to, wrap=wrap, location=location)


@custom_method(METHODS, "start", "database:StartCluster", status=202, statuses=(409,))
async def start_cluster(cluster_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Start a cluster that is run here; one that runs stays as it is."""
    return await _set_wanted(cluster_id, ctx, is_wanted=True)


@custom_method(METHODS, "stop", "database:StopCluster", status=202, statuses=(409,))
async def stop_cluster(cluster_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Stop a cluster that is run here; its data stay."""
    return await _set_wanted(cluster_id, ctx, is_wanted=False)


@post(
    _ONE + "/reset-password",
    status_code=202,
    opt={"action": "database:ResetClusterPassword", "idempotent": True, "statuses": (409,)},
)
async def reset_cluster_password(
    cluster_id: FromPath[str], ctx: Context, needs: Needs[DatabaseNeeds]
) -> Reply[NewPassword]:
    """Give the owner of a cluster that is run here a new password, which works some seconds later.

    If the cluster is stopped, the password works when it is started.
    """
    found = await METHODS.authorized(ctx, cluster_id)
    password = clusters.new_password()
    sealed = seal_password(needs.keyring, found.id, password)
    change, now = clusters.reset_password, ctx.clock()
    return await ctx.commit(
        change, found, sealed, now, wrap=lambda _: NewPassword(password=password)
    )


@METHODS.answers.changes(
    _ONE + "/change-credentials",
    "database:ChangeClusterCredentials",
    statuses=(409,),
    idempotent=False,
)
async def change_cluster_credentials(
    cluster_id: FromPath[str],
    data: JSONBody[GivenCredentials],
    ctx: Context,
    needs: Needs[DatabaseNeeds],
) -> Reply[ResponseBody]:
    """Change the credentials for a cluster that runs elsewhere: password, role and roots.

    They are tried before they are stored: it is 409, with the server's own words, if the server
    refuses them.
    """
    found = await METHODS.authorized(ctx, cluster_id)
    clusters.check_registered(found)
    assert found.endpoint is not None
    endpoint = with_credentials(found.endpoint, data)
    tried = RegisteredEndpoint(
        endpoint.host, endpoint.port, endpoint.username, data.password, endpoint.ca
    )
    try:
        await server_version(tried, endpoint.database, needs.terms.networks)
    except EndpointUnreachable as error:
        words = f"the server does not take them: {error}"
        raise Conflict(words, reason="endpoint_unreachable") from None
    await ctx.authorize_again(found.crn)  # the server had half a minute to answer
    sealed, now = seal_password(needs.keyring, found.id, data.password), ctx.clock()
    return await ctx.commit(
        clusters.change_credentials, found, endpoint, sealed, now, wrap=METHODS.one
    )


@delete(
    _ONE,
    status_code=202,
    opt={"action": CLUSTER.action("delete"), "query": DeleteQuery, "statuses": (409,)},
)
async def delete_cluster(cluster_id: FromPath[str], ctx: Context) -> Response[bytes]:
    """Delete a cluster; it is `deleting` until all of it is gone, and then 404.

    The data of a cluster that is run here are retained for a day, but cannot be reached. It is 409
    if the cluster has backups, unless `cascade` deletes them too, and while another cluster is
    being restored from them.
    """
    found = await METHODS.authorized(ctx, cluster_id)
    if found.status != DELETING:
        cascade = ctx.query(DeleteQuery).cascade
        now = ctx.clock()
        await ctx.database.write(lambda tx: clusters.delete(tx, found, now, is_cascade=cascade))
    return Response(b"", status_code=202, media_type="application/json")


async def _set_wanted(
    cluster_id: str, ctx: RequestContext, *, is_wanted: bool
) -> Reply[ResponseBody]:
    found, now = await METHODS.authorized(ctx, cluster_id), ctx.clock()
    return await ctx.commit(
        lambda tx: clusters.set_wanted(tx, found, now, is_wanted=is_wanted),
        wrap=METHODS.one,
        details=METHODS.details_if_changed(now),
    )
