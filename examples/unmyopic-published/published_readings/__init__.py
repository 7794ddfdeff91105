"""Trained models of others with published readings, each statement held against the weights."""
