"""Speed of our implementation relative to what a user would write with a peer, timed in the same run."""
