"""Tools for hand-written weights."""
