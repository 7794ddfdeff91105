"""Papers, one folder each; none yet."""
