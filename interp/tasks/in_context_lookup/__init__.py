"""In-context lookup: pairs of symbols, then questions for the partner of each."""
