"""How readings come to be: models with snapshots of their training."""
