"""Ratios of ours against what a user would write with a peer, both sides timed in one run."""
