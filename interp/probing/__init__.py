"""Linear probes with control tasks, and interchange interventions."""
