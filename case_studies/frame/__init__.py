"""How a study runs: claims, measures, rules, verdicts, page."""
