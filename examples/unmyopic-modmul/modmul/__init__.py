"""Modular multiplication: a task and a study for unmyopic."""
