"""What every analysis shares: results, statistics, randomness, manifests, activations."""
