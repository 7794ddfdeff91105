"""Indirect objects: sentences with two names of which one is repeated; the other one is the answer."""
