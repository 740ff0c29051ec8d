"""Sources of two versions of the program, one of which has a migration that the other has not."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from registry.metadata.migrations import revisions
from tests.databases import ROOT

VERSIONS: Final = "registry/metadata/migrations/versions"
"""The folder of migrations, below `src`."""
THIS: Final = revisions()[-1]
"""The revision of this version's tables."""
NEXT: Final = f"{int(THIS) + 1:04}"
"""That of the next version's."""
_MIGRATION: Final = f'''"""Change the tables in the ways that a release may."""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{THIS}"


def upgrade():
    weight = sa.Column("weight", sa.Integer, nullable=False, server_default=sa.text("0"))
    op.add_column("queues", sa.Column("colour", sa.Text))
    op.add_column("repositories", sa.Column("colour", sa.Text))
    op.add_column("tags", weight)
    op.create_index("ix_tags_weight", "tags", ["repository_id", "weight"])
    op.create_table(
        "colours",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("account_id", sa.String(36), sa.ForeignKey("accounts.id"), nullable=False),
    )
'''


def next_version(folder: Path) -> Path:
    """Copy the sources into a folder, with one migration more; return their ``src``.

    Those that are compiled already stay so, as files keep their times.
    """
    sources = folder / "src"
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("*.pyc.*"))
    (sources / VERSIONS / f"{NEXT}_next.py").write_text(_MIGRATION)
    return sources


def two_versions(folder: Path) -> tuple[Path, Path]:
    """Return the sources of a version and of the next one.

    These are the last release and this tree, or, while the tables are those of the release or the
    history of the sources is not here, this tree and `next_version`.
    """
    release = _last_release()
    if release:
        with tarfile.open(fileobj=BytesIO(_git("archive", release, "src"))) as archive:
            archive.extractall(folder)
        released = {each.name[:4] for each in (folder / "src" / VERSIONS).glob("[0-9]*.py")}
        if released < {*revisions()}:
            return folder / "src", ROOT / "src"
    return ROOT / "src", next_version(folder / "next")


def _last_release() -> str:
    """Return the tag of the last release before this tree; empty if there is none."""
    tags = _git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname")
    return next(iter(tags.decode().split()), "")


def _git(*arguments: str) -> bytes:
    """Return what git prints of this tree, or nothing without git or its history."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return b""
