"""Self-contained HTML pages: one file, without network access."""
