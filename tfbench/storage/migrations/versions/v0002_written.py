"""Add the time at which a document was written, for those who tidy the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """Add the column; documents from before have none."""
    op.add_column("tfbench_document", sa.Column("written", sa.DateTime(timezone=True), server_default=sa.func.now()))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("tfbench_document", "written")
