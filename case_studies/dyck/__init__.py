"""Transformers are uninterpretable with myopic methods: a case study with bounded Dyck grammars (arXiv:2312.01429)."""
