"""Accuracy, perplexity and extrapolation."""
