"""Store baselines and history in JSON files, each written atomically."""
