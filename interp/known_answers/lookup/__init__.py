"""Hand-written models that look up letters: in lists of values, and in sequences with repeats."""
