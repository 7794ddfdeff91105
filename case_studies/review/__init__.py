"""Reviewing a study: measuring its claims again (`--check`), and archives of its results (`--bundle`)."""
