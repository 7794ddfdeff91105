"""The template paper's language models: what a I and b I do for perplexity, diagonals, and fine-tuning."""
