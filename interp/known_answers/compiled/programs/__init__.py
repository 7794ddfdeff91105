"""RASP programs of our own, each with a statement in plain Python of what it computes."""
