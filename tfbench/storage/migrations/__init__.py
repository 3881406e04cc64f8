"""Migrations of the tables of a history in PostgreSQL, which Alembic runs."""
