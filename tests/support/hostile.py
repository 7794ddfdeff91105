"""Settings of a Hugging Face config that choose code or files."""

CODE = {
    "auto_map": {"AutoModelForMaskedLM": "evil.Evil", "AutoConfig": "evil.Evil"},
    "trust_remote_code": True,
    "attn_implementation": "evil/kernel",
    "_attn_implementation": "evil/kernel",
    "_attn_implementation_internal": "evil/kernel",
    "experts_implementation": "evil",
    "use_kernels": True,
    "transformers_weights": "w.bin",
    "dtype": "evil",
    "_name_or_path": "/etc",
    "custom_pipelines": {"x": {"impl": "evil.Evil"}},
}
