"""Transformers as values and modules: config, blocks, attention, embeddings, hook points."""
