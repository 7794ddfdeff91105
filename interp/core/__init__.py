"""Shared by all analyses: results, statistics, randomness, manifests, activations, devices, progress."""
