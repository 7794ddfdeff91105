"""Models of other libraries (Hugging Face, TransformerLens) under canonical hook names."""
