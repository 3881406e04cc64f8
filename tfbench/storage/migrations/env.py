"""Run migrations on the connection of `tfbench.storage.database`, one process at a time."""

from __future__ import annotations

from alembic import context
from sqlalchemy import text

LOCK = 0x7F_BE_7C
"""Key of the advisory lock of PostgreSQL: two fleets may meet an old database at once."""

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="tfbench_version")
with context.begin_transaction():
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    context.run_migrations()
