"""Names of hook points and their axes, as in TransformerLens.

The full name of a point of a layer starts with `blocks.` and the index of the applied layer: `blocks.0.attn.hook_z`.
`model.hook_dict` has the points of one model: a model without positions, norms or an MLP lacks theirs.
"""

MODEL_POINTS = {
    "hook_embed": "batch pos d_model",
    "hook_pos_embed": "batch pos d_model",
    "hook_token_type_embed": "batch pos d_model",
    "ln_embed.hook_scale": "batch pos 1",
    "ln_embed.hook_normalized": "batch pos d_model",
    "ln_final.hook_scale": "batch pos 1",
    "ln_final.hook_normalized": "batch pos d_model",
    "ln_head.hook_scale": "batch pos 1",
    "ln_head.hook_normalized": "batch pos d_model",
}
"""Points outside layers. `hook_token_type_embed`, `ln_embed` and `ln_head` belong to `hooks.Encoder`, where d_model is
d_embedding for the embeddings of a model that has it."""

LAYER_POINTS = {
    "hook_resid_pre": "batch pos d_model",
    "ln1.hook_scale": "batch pos 1",
    "ln1.hook_normalized": "batch pos d_model",
    "attn.hook_q_input": "batch pos head d_model",
    "attn.hook_k_input": "batch pos head d_model",
    "attn.hook_v_input": "batch pos head d_model",
    "attn.hook_q": "batch pos head d_head",
    "attn.hook_k": "batch pos head d_head",
    "attn.hook_v": "batch pos head d_head",
    "attn.hook_attn_scores": "batch head query key",
    "attn.hook_pattern": "batch head query key",
    "attn.hook_z": "batch pos head d_head",
    "attn.hook_result": "batch pos head d_model",
    "hook_attn_out": "batch pos d_model",
    "hook_resid_mid": "batch pos d_model",
    "hook_mlp_in": "batch pos d_model",
    "ln2.hook_scale": "batch pos 1",
    "ln2.hook_normalized": "batch pos d_model",
    "mlp.hook_pre": "batch pos d_mlp",
    "mlp.hook_post": "batch pos d_mlp",
    "hook_mlp_out": "batch pos d_model",
    "hook_resid_post": "batch pos d_model",
}
"""Points of each applied layer. Scores are -inf where masked, rows of a pattern sum to one, a scale is a standard
deviation, `hook_normalized` comes after gain and bias, `mlp.hook_post` after the nonlinearity."""

SETTERS = {
    "hook_q_input": "set_use_split_qkv_input",
    "hook_k_input": "set_use_split_qkv_input",
    "hook_v_input": "set_use_split_qkv_input",
    "hook_result": "set_use_attn_result",
    "hook_mlp_in": "set_use_hook_mlp_in",
}
"""Points that exist only after a call of this method of the model (`hook_result` also with b I)."""

HEAD_AXIS = {
    name.rpartition(".")[2]: axes.split().index("head") for name, axes in LAYER_POINTS.items() if "head" in axes.split()
}
"""Index of the axis of heads, by the last part of a name."""
