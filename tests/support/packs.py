"""Packs of two small programs with hand-written weights; their answers are computed in plain Python."""

import json

import numpy as np

LETTERS, BOS, PAD = ("a", "b", "c"), "compiler_bos", "compiler_pad"
TOKENS = (*LETTERS, BOS, PAD)
POS, SHARP = 6, 100.0
PREVIOUS = [f"previous:{letter}" for letter in LETTERS]
RESIDUAL = [*(f"indices:{at}" for at in range(POS)), "one", *PREVIOUS, "same_attn_output"]
RESIDUAL += [f"tokens:{token}" for token in TOKENS]
AT = {name: index for index, name in enumerate(RESIDUAL)}
D_MODEL, D_HEAD = len(RESIDUAL), POS + 1


def weights(numerical):
    """Layer 0, head 1 moves the previous letter; layer 1, head 0 counts equal letters; the other heads are zero."""
    heads = {name: np.zeros((2, 2, D_MODEL, D_HEAD), np.float32) for name in ("W_Q", "W_K", "W_V")}
    found = {**heads, "W_O": np.zeros((2, 2, D_HEAD, D_MODEL), np.float32)}
    found |= {"W_in": np.zeros((2, D_MODEL, 1), np.float32), "W_out": np.zeros((2, 1, D_MODEL), np.float32)}
    first = POS  # coordinate of a head for the first token
    for at in range(POS):
        if at:
            found["W_Q"][0, 1, AT[f"indices:{at}"], at - 1] = SHARP
        found["W_K"][0, 1, AT[f"indices:{at}"], at] = 1
    found["W_Q"][0, 1, AT["one"], first] = SHARP / 2
    found["W_K"][0, 1, AT[f"tokens:{BOS}"], first] = 1
    for place, letter in enumerate(LETTERS):
        found["W_V"][0, 1, AT[f"tokens:{letter}"], place] = 1
        found["W_O"][0, 1, place, AT[f"previous:{letter}"]] = 1
        found["W_Q"][1, 0, AT[f"tokens:{letter}"], place] = SHARP
        found["W_K"][1, 0, AT[f"tokens:{letter}"], place] = 1
    found["W_Q"][1, 0, AT["one"], first] = SHARP
    found["W_K"][1, 0, AT[f"tokens:{BOS}"], first] = 1
    found["W_V"][1, 0, AT[f"tokens:{BOS}"], 0] = 1
    found["W_O"][1, 0, 0, AT["same_attn_output"]] = 1
    found["W_E"] = np.zeros((len(TOKENS), D_MODEL), np.float32)
    for place, token in enumerate(TOKENS):
        found["W_E"][place, [AT[f"tokens:{token}"], AT["one"]]] = 1
    found["W_pos"] = np.zeros((POS + 1, D_MODEL), np.float32)
    for at in range(POS):
        found["W_pos"][at + 1, AT[f"indices:{at}"]] = 1
    outputs = ["same_attn_output"] if numerical else PREVIOUS
    found["W_U"] = np.eye(D_MODEL, dtype=np.float32)[:, [AT[name] for name in outputs]]
    return found


def answer(word, at, numerical):
    """The letter before, if there is one; or 1 / (1 + how often the letter occurs)."""
    if numerical:
        return 1 / (1 + word.count(word[at]))
    return LETTERS.index(word[at - 1]) if at else -1


def examples(n, numerical, seed=0):
    """Random words: token ids, answers, and the keys that the two heads select."""
    draw = np.random.default_rng(seed)
    tokens = np.full((n, POS), TOKENS.index(PAD), np.int16)
    targets = np.full((n, POS), np.nan if numerical else -1, np.float32 if numerical else np.int16)
    keys = np.zeros((2, n, POS, POS), bool)
    for row in range(n):
        word = [LETTERS[index] for index in draw.integers(3, size=draw.integers(2, POS))]
        tokens[row, : len(word) + 1] = [TOKENS.index(one) for one in (BOS, *word)]
        for at, letter in enumerate(word):
            targets[row, at + 1] = answer(word, at, numerical)
            keys[0, row, at + 1, at] = at > 0
            keys[1, row, at + 1, 1 : len(word) + 1] = [other == letter for other in word]
    return tokens, targets, keys


def about(n, some, numerical):
    """What the JSON file says."""

    def head(layer, index, use, writes, select):
        words = dict(zip(("keys", "predicate", "queries"), select.split(), strict=True))
        return {"layer": layer, "head": index, "use": use, "writes": [writes], "reads": ["tokens"],
                "queries": ["one"], "keys": ["tokens"], "selector": {"select": words}}  # fmt: skip

    return {
        "case": "numbers" if numerical else "letters", "description": "A small program.", "source": "hand-written",
        "tokens": TOKENS, "bos": BOS, "pad": PAD, "max_seq_len": POS, "n_layers": 2, "n_heads": 2, "d_head": D_HEAD,
        "d_mlp": 1, "d_model": D_MODEL, "activation": "relu", "normalization": None, "attn_scale": 1.0,
        "causal": False, "residual": RESIDUAL, "output": "numerical" if numerical else "categorical",
        "output_values": None if numerical else LETTERS, "relations_shape": [2, some, POS, POS], "agreement": 1.0,
        "n_examples": n,
        "heads": [head(0, 1, "aggregate", "previous", "indices function indices"),
                  head(1, 0, "selector_width", "same_attn_output", "tokens EQ tokens")],
    }  # fmt: skip


def write_pack(folder, *, numerical=False, n=400, some=200, change=None, **arrays):
    """Write a pack; `change` edits what its JSON file says, `arrays` replace some of its arrays."""
    tokens, targets, keys = examples(n, numerical)
    values = about(n, some, numerical)
    if change is not None:
        change(values)
    path = folder / values["case"]
    path.with_suffix(".json").write_text(json.dumps(values))
    found = {**weights(numerical), "tokens": tokens, "targets": targets, "relations": np.packbits(keys[:, :some])}
    np.savez_compressed(path.with_suffix(".npz"), **{**found, **arrays})
    return path
