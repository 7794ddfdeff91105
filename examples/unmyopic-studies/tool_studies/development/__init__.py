"""How labels of heads come to be: models with snapshots of their training."""
