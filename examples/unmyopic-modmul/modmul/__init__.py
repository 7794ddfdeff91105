"""Modular addition: a task and a study for unmyopic."""
