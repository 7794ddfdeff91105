"""Hand-written models of the small tasks: in-context lookup, modular addition, indirect objects."""
