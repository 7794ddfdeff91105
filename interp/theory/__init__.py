"""Quantities that the papers' theorems are about: balance, kernels, sign counting, pruning."""
