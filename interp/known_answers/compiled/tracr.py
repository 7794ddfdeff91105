"""Programs that tracr assembled in this process: only arrays and names are read, and tracr is never imported."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from hooks.checks import check_number
from hooks.files import shortened
from interp.core.randomness import derived_seed
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.compiled.answers import known_answer_of
from interp.known_answers.compiled.network import network
from interp.known_answers.compiled.program import Program, Selector

LEAST = 0.5
"""A one-hot output below this is no answer; a weight above this share of a row's largest is that of a selected key."""


def from_tracr(assembled: Any, *, output: str | None = None, n: int = 2000, seed: int = 0) -> KnownAnswer:
    """A program that tracr assembled, as a known answer.

    Random inputs of different lengths are drawn from the program's vocabulary. Their answers are the model's, which are
    the program's where tracr compiled it rightly; the keys that a head selects are those to which it attends.

    Args:
        assembled: What `tracr.compiler.compiling.compile_rasp_to_model` returns. Its parameters, its config, the labels
            of its residual stream, its encoders and the space of its output are read; nothing of it is called.
        output: Variable that the program returns, as the `label` of its last expression, or its name if no other
            variable has it. Default: the variable that tracr's model returns.
        n: Number of inputs.
        seed: Determines them.

    Raises:
        ValueError: an object without these parts, a program that was compiled with norms, or an output that is not in
            the stream (lists the variables that could be).

    Source: tracr (google-deepmind/tracr). Differs: scores are not scaled, since W_Q has the factor; padding is masked.
    """
    check_number("n", n, integer=True, low=64)
    program = assembled_program(assembled, output)
    return known_answer_of(_with_examples(program, _random_inputs(program, n, seed)))


def assembled_program(assembled: Any, output: str | None = None) -> Program:
    """The program of an assembled model of tracr, without examples; arguments and errors as in `from_tracr`."""
    # Read everything that may be missing from an object of another kind
    try:
        sizes = assembled.model_config
        residual = tuple(map(str, assembled.residual_labels))
        inputs, outputs, params = assembled.input_encoder, assembled.output_encoder, assembled.params
        ids = {str(value): int(token) for value, token in inputs.encoding_map.items()}
        norm, causal = bool(sizes.layer_norm), bool(sizes.causal)
        shape = (int(sizes.num_layers), int(sizes.num_heads), len(residual), int(sizes.key_size))
        weights = _weights(params, shape)
        bos, pad = inputs.bos_token, inputs.pad_token
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"assembled is a {type(assembled).__name__} that cannot be read ({shortened(str(error))}); pass what "
            f"compile_rasp_to_model of tracr returns."
        ) from error
    # The read-out picks the coordinates of the output
    if norm:
        raise ValueError("assembled has LayerNorm; only programs compiled without norms can be read.")
    if output is None:
        output = _variable_of_output(assembled)
    coordinates, output_values = _output(residual, getattr(outputs, "encoding_map", None), output)
    weights["W_U"] = np.eye(len(residual), dtype=np.float32)[:, coordinates]
    return Program(
        name="tracr program",
        description="compiled in this process",
        source="tracr",
        tokens=tuple(sorted(ids, key=ids.__getitem__)),
        bos=None if bos is None else str(bos),
        pad=str(pad),
        causal=causal,
        residual=residual,
        output_values=output_values,
        selectors=(),
        weights=weights,
        examples=np.zeros((0, 1), dtype=np.int64),
        targets=np.zeros((0, 1)),
        relations=np.zeros((0, 0, 1, 1), dtype=bool),
    )


def _variable_of_output(assembled: Any) -> str | None:
    """The variable that an assembled model returns; None if its parts do not say.

    An assembled model has no field for it. The function that builds the model holds the space that it reads out.
    """
    build_model = getattr(assembled, "get_compiled_model", None)
    code, cells = getattr(build_model, "__code__", None), getattr(build_model, "__closure__", None)
    if code is None or cells is None:
        return None
    spaces = dict(zip(code.co_freevars, cells, strict=True))
    if "output_space" not in spaces:
        return None
    directions = getattr(spaces["output_space"].cell_contents, "basis", ())
    names = {str(direction.name) for direction in directions}
    return names.pop() if len(names) == 1 else None


def _weights(params: Mapping[str, Any], shape: Sequence[int]) -> dict[str, Float[np.ndarray, "..."]]:
    """Weights in the axes of a pack."""
    n_layers, n_heads, d_model, d_head = shape

    # Arrays of one module, of all layers stacked, and of all heads
    def array(module: str, name: str) -> np.ndarray:
        return np.array(params[module][name], dtype=np.float32)  # a copy that can be written

    def of_layers(module: str) -> np.ndarray:
        for layer in range(n_layers):
            if np.any(array(f"transformer/layer_{layer}/{module}", "b")):
                raise ValueError(f"{module} of layer {layer} has a bias")
        return np.stack([array(f"transformer/layer_{layer}/{module}", "w") for layer in range(n_layers)])

    def of_heads(name: str) -> np.ndarray:
        return of_layers(f"attn/{name}").reshape(n_layers, d_model, n_heads, d_head).swapaxes(1, 2)

    return {
        "W_E": array("token_embed", "embeddings"),
        "W_pos": array("pos_embed", "embeddings"),
        "W_Q": of_heads("query") / np.float32(d_head) ** np.float32(0.5),
        "W_K": of_heads("key"),
        "W_V": of_heads("value"),
        "W_O": of_layers("attn/linear").reshape(n_layers, n_heads, d_head, d_model),
        "W_in": of_layers("mlp/linear_1"),
        "W_out": of_layers("mlp/linear_2"),
    }


def _output(
    residual: Sequence[str], values: Mapping[Any, int] | None, output: str | None
) -> tuple[list[int], tuple[str, ...] | None]:
    """Coordinates of the output, in the order of its values, and the names of these."""
    order = {} if values is None else {str(value): int(place) for value, place in values.items()}
    output_values = tuple(sorted(order, key=order.__getitem__))
    # A variable fits if it has a coordinate for each value of the output, or is a number if the output is one
    variables = dict.fromkeys(label.split(":", 1)[0] for label in residual)
    labels = {name: [name] for name in variables}
    if output_values:
        labels = {name: [f"{name}:{value}" for value in output_values] for name in variables}
    fitting = [name for name in variables if set(labels[name]) <= set(residual)]
    likely = [name for name in fitting if name not in ("tokens", "indices", "one")]
    # The caller's choice, also without the number that tracr adds to names; or the only likely variable
    if output is None and len(likely) == 1:
        output = likely[0]
    if output is not None and output not in fitting:
        numbered = [name for name in fitting if re.fullmatch(rf"{re.escape(output)}_\d+", name)]
        output = numbered[0] if len(numbered) == 1 else output
    if output not in fitting:
        problem = f"output is {output!r}" if output is not None else f"{len(likely)} variables could be the output"
        raise ValueError(
            f"{problem}; choose output among {', '.join(likely or fitting) or 'none'}. The program's is the `label` of "
            f"the expression that was compiled."
        )
    return [residual.index(label) for label in labels[output]], output_values or None


def _random_inputs(program: Program, n: int, seed: int) -> Int[np.ndarray, "example pos"]:
    """Random inputs of different lengths, up to the longest: the first token, then any but the special ones."""
    rng = np.random.default_rng(derived_seed(seed, "tracr inputs"))
    pos = len(program.weights["W_pos"])
    plain = [token for token, name in enumerate(program.tokens) if name not in (program.bos, program.pad)]
    first = 0 if program.bos is None else 1
    inputs = rng.choice(plain, size=(n, pos))
    lengths = rng.integers(first + 1, pos + 1, size=n)
    inputs[np.arange(pos) >= lengths[:, None]] = program.tokens.index(program.pad)
    if program.bos is not None:
        inputs[:, 0] = program.tokens.index(program.bos)
    return inputs


@torch.no_grad()
def _with_examples(program: Program, examples: Int[np.ndarray, "example pos"]) -> Program:
    """The program with these inputs, the answers of its model, and the keys to which its heads attend."""
    model = network(program)
    tokens = torch.from_numpy(examples)
    real = tokens != program.tokens.index(program.pad)
    logits, cache = model.run_with_cache(tokens, attention_mask=real)
    # Answers at all real tokens but the first, special one; none where the output is not one-hot
    answered = real.clone()
    if program.bos is not None:
        answered[:, 0] = False
    if program.numerical:
        targets = torch.where(answered, logits[..., 0], torch.nan)
    else:
        targets = torch.where(answered & (logits.amax(-1) > LEAST), logits.argmax(-1), -1)
    # A key is selected if its weight is above a share of the row's largest
    heads = np.argwhere((program.weights["W_O"] != 0).any((2, 3))).tolist()
    related = []
    for layer, head in heads:
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]
        is_selected = pattern > LEAST * pattern.amax(-1, keepdim=True)
        related.append(is_selected & real[:, None] & real[..., None])
    selectors = tuple(
        Selector(layer=layer, head=head, writes=(), reads=(), selects="as it attends", counts=False)
        for layer, head in heads
    )
    n_examples, pos = tokens.shape
    relations = torch.stack(related) if related else torch.zeros(0, n_examples, pos, pos, dtype=torch.bool)
    n_related = n_examples // 2  # the others are for training
    return replace(
        program,
        selectors=selectors,
        examples=examples,
        targets=targets.numpy(),
        relations=relations[:, :n_related].numpy(),
    )
