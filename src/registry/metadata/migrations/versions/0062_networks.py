"""Add VPCs and what belongs to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, Id, Moment

revision = "0062"
down_revision = "0061"

_STATUS = "status IN ('provisioning', 'active', 'degraded', 'deleting')"
_GLOBAL = sa.text("cidr_ipv6 < 'f'")
_DEFAULT = sa.text("is_default")
_MAIN = sa.text("is_main")


def upgrade() -> None:
    _create(
        "vpcs",
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("cidr_ipv4", sa.Text, nullable=False),
        sa.Column("cidr_ipv6", ByteOrdered),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("checked", sa.BigInteger, nullable=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.CheckConstraint(_STATUS, name=op.f("ck_vpcs_status")),
    )
    op.create_index("ix_vpcs_node_id", "vpcs", ["node", "id"])
    _create_unique_where("uq_vpcs_cidr_ipv6", "vpcs", "cidr_ipv6", _GLOBAL)
    _create(
        "internet_gateways",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("vpc_id", Id),
        sa.Column("tags", sa.Text, nullable=False),
        _refers("internet_gateways", "vpc", "vpcs"),
    )
    op.create_index("uq_internet_gateways_vpc_id", "internet_gateways", ["vpc_id"], unique=True)
    _create(
        "egress_only_gateways",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        _refers("egress_only_gateways", "vpc", "vpcs"),
        sa.ForeignKeyConstraint(
            ["vpc_id"], ["internet_gateways.vpc_id"], name="fk_egress_only_gateways_uplink"
        ),
    )
    op.create_index(
        "uq_egress_only_gateways_vpc_id", "egress_only_gateways", ["vpc_id"], unique=True
    )
    _create(
        "route_tables",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_main", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("routes", sa.Text, nullable=False),
        sa.Column("internet_gateway_id", Id),
        sa.Column("egress_only_gateway_id", Id),
        _refers("route_tables", "vpc", "vpcs"),
        _refers("route_tables", "internet_gateway", "internet_gateways"),
        _refers("route_tables", "egress_only_gateway", "egress_only_gateways"),
    )
    for column in ("vpc_id", "internet_gateway_id", "egress_only_gateway_id"):
        op.create_index(f"ix_route_tables_{column}", "route_tables", [column])
    _create_unique_where("uq_route_tables_main", "route_tables", "vpc_id", _MAIN)
    _create(
        "subnets",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("cidr_ipv4", sa.Text),
        sa.Column("cidr_ipv6", sa.Text),
        sa.Column("route_table_id", Id),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("next_ipv4", sa.BigInteger, nullable=False),
        sa.Column("next_ipv6", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            "cidr_ipv4 IS NOT NULL OR cidr_ipv6 IS NOT NULL", name=op.f("ck_subnets_cidr_ipv4")
        ),
        sa.CheckConstraint("route_table_id IS NOT NULL", name=op.f("ck_subnets_route_table_id")),
        _refers("subnets", "vpc", "vpcs"),
        _refers("subnets", "route_table", "route_tables"),
    )
    for column in ("vpc_id", "route_table_id"):
        op.create_index(f"ix_subnets_{column}", "subnets", [column])
    _create(
        "security_groups",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("rules", sa.Text, nullable=False),
        _refers("security_groups", "vpc", "vpcs"),
    )
    op.create_index("ix_security_groups_vpc_id", "security_groups", ["vpc_id"])
    _create_unique_where("uq_security_groups_default", "security_groups", "vpc_id", _DEFAULT)
    _create(
        "network_interfaces",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("subnet_id", Id, nullable=False),
        sa.Column("address_ipv4", sa.Text),
        sa.Column("address_ipv6", sa.Text),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("is_balancer", sa.Boolean, nullable=False),
        sa.Column("security_groups", sa.Text, nullable=False),
        sa.CheckConstraint(
            "address_ipv4 IS NOT NULL OR address_ipv6 IS NOT NULL",
            name=op.f("ck_network_interfaces_address_ipv4"),
        ),
        _refers("network_interfaces", "vpc", "vpcs"),
        _refers("network_interfaces", "subnet", "subnets"),
    )
    for column in ("address_ipv4", "address_ipv6"):
        name = f"uq_network_interfaces_{column}"
        op.create_index(name, "network_interfaces", ["vpc_id", column], unique=True)
    op.create_index("ix_network_interfaces_subnet_id", "network_interfaces", ["subnet_id"])
    op.create_table(
        "network_interface_groups",
        sa.Column("interface_id", Id, nullable=False),
        sa.Column("group_id", Id, nullable=False),
        sa.ForeignKeyConstraint(
            ["interface_id"],
            ["network_interfaces.id"],
            name=op.f("fk_network_interface_groups_interface_id"),
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["security_groups.id"], name=op.f("fk_network_interface_groups_group_id")
        ),
        sa.PrimaryKeyConstraint(
            "interface_id", "group_id", name=op.f("pk_network_interface_groups")
        ),
    )
    op.create_index(
        "ix_network_interface_groups_group_id", "network_interface_groups", ["group_id"]
    )
    op.create_table(
        "subnet_free_addresses",
        sa.Column("subnet_id", Id, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("freed_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["subnet_id"], ["subnets.id"], name=op.f("fk_subnet_free_addresses_subnet_id")
        ),
        sa.PrimaryKeyConstraint("subnet_id", "position", name=op.f("pk_subnet_free_addresses")),
    )
    op.create_index(
        "ix_subnet_free_addresses_freed_at",
        "subnet_free_addresses",
        ["subnet_id", "freed_at", "position"],
    )


def downgrade() -> None:
    for table in (
        "subnet_free_addresses",
        "network_interface_groups",
        "network_interfaces",
        "security_groups",
        "subnets",
        "route_tables",
        "egress_only_gateways",
        "internet_gateways",
        "vpcs",
    ):
        op.drop_table(table)


def _create(name: str, *more: sa.schema.SchemaItem) -> None:
    """Create a table with what all kinds of resources of accounts have."""
    op.create_table(
        name,
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        *more,
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f(f"fk_{name}_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}")),
        sa.UniqueConstraint("id", "account_id", name=op.f(f"uq_{name}_id_account_id")),
    )
    op.create_index(f"ix_{name}_account_id_id", name, ["account_id", "id"])
    op.create_index(f"uq_{name}_name", name, ["account_id", "region", "name"], unique=True)


def _refers(table: str, field: str, target: str) -> sa.ForeignKeyConstraint:
    """Return what binds a column to a resource of the same account."""
    return sa.ForeignKeyConstraint(
        [f"{field}_id", "account_id"],
        [f"{target}.id", f"{target}.account_id"],
        name=f"fk_{table}_{field}",
    )


def _create_unique_where(name: str, table: str, column: str, where: sa.TextClause) -> None:
    op.create_index(name, table, [column], unique=True, sqlite_where=where, postgresql_where=where)
