"""The schema of the store, step by step (Alembic), and `upgrade`, which brings a database to the newest step."""
