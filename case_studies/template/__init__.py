"""When can transformers reason with abstract symbols? (arXiv:2310.09753)"""
