"""The template paper's language models: effect of a I and b I on perplexity, diagonals, fine-tuning."""
