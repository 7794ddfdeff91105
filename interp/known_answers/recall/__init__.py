"""Hand-written models that recall what came before: induction, repeats, the first token."""
