"""Compiling RASP programs with tracr, and checking every compiled model by a plain statement of what it computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from hooks.checks import check_number, did_you_mean, listed
from hooks.extras import require
from hooks.state import default_process_state
from hooks.typed import checks_types
from interp.core.randomness import derived_seed
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.compiled.answers import known_answer_of
from interp.known_answers.compiled.network import network
from interp.known_answers.compiled.program import Program, Selector
from interp.known_answers.compiled.programs.program import RaspProgram, Word
from interp.known_answers.compiled.programs.suite import PROGRAMS
from interp.known_answers.compiled.tracr import LEAST, assembled_program

SOURCE = "written for unmyopic, compiled by tracr (Lindner et al. 2023)"
ATTENDED = "_selector_width_attn_output"
"""Ending of tracr's name for what a head that counts writes: 1 / (1 + the number of selected keys)."""
PRECISION = 1e-3
"""Largest error of a number, and of an attention weight."""
EXACTNESS = 100
"""Steepness of tracr's steps, by default. A step of a count n must fit between 1 / (n + 1) and 1 / n: its width, 1 over
the steepness, below half of 1 / (n (n + 1)). By default that is so up to n = 6; twice as steep is always enough."""
FEWEST = 64
"""Smallest number of inputs."""


@checks_types
def compile_program(program: str | RaspProgram, *, n: int = 1000, seed: int = 0) -> KnownAnswer:
    """Compile a RASP program to a transformer whose every head is known, and check it.

    Answers are those of the program's statement in plain Python; selected keys are those that the program's selectors
    select. The model must agree with both on every input that is drawn: all of them if they are at most `n`. The
    order of tokens, coordinates and hidden units does not depend on tracr's numbering, so a program compiles to the
    same arrays in every process. Needs the extra `tracr`.

    Args:
        program: A program, or the name of one of `PROGRAMS`.
        n: Largest number of inputs; half of them are for training, the selected keys of the others are known.
        seed: Determines which inputs are drawn, and their order.

    Raises:
        MissingExtra: tracr is not installed.
        ValueError: an unknown name, fewer than 64 inputs, or a compiled model that does not compute what the program
            states (names an input): tracr does not support everything that it compiles.
        NotImplementedError: tracr does not compile it.

    Example:
        >>> from interp.known_answers import PROGRAMS
        >>> PROGRAMS["histogram"].statement(("a", "b", "a"))
        [2, 1, 2]

    Source: tracr, Lindner et al. 2023 (arXiv:2301.05062). Differs: names have no numbers; coordinates are sorted.
    """
    return known_answer_of(compiled(program, n=n, seed=seed))


@default_process_state()  # jax draws from NumPy's when it is imported
def compiled(program: str | RaspProgram, *, n: int = 1000, seed: int = 0) -> Program:
    """The compiled program, checked; arguments and errors as in `compile_program`."""
    check_number("n", n, integer=True, low=FEWEST)
    program = named_program(program) if isinstance(program, str) else program
    require("tracr", extra="tracr")
    from tracr.compiler.compiling import compile_rasp_to_model
    from tracr.rasp import rasp

    # Compile, and give tokens, coordinates and hidden units an order of our own
    output, longest = program.write(rasp), max(program.lengths)
    assembled = compile_rasp_to_model(
        output,
        vocab=set(program.tokens),
        max_seq_len=longest,
        causal=program.causal,
        mlp_exactness=max(EXACTNESS, 4 * longest * (longest + 1)),
    )
    expressions = list(_expressions(output))
    model = _in_order(assembled_program(assembled, output.label), program, _plain_names(expressions))
    # Inputs, answers by the statement, and keys by the selectors
    words = program.inputs(n, np.random.default_rng(derived_seed(seed, f"inputs of {program.name}")))
    with_answers = replace(model, **_examples(model, program, words))
    selectors = _selectors(with_answers, expressions, _plain_names(expressions))
    n_related = (len(words) + 1) // 2
    relations = _relations(with_answers, selectors, words[:n_related])
    complete = replace(
        with_answers, selectors=tuple(selection.selector for selection in selectors), relations=relations
    )
    _check(complete, program, words)
    return complete


def named_program(name: str) -> RaspProgram:
    """One of `PROGRAMS`.

    Raises:
        ValueError: there is none of this name; names the nearest.
    """
    if name not in PROGRAMS:
        hint = did_you_mean(name, PROGRAMS)
        raise ValueError(f"there is no program {name!r}.{hint} There are {listed(PROGRAMS)}.")
    return PROGRAMS[name]


@dataclass(frozen=True)
class Selection:
    """A head of a compiled model, and tracr's expressions that it was compiled from."""

    selector: Selector
    keys: Any
    queries: Any
    predicate: Any


def _expressions(output: Any) -> Iterator[Any]:
    """Every expression of a program once, from its output to its tokens."""
    remaining, labels = [output], set()
    while remaining:
        expression = remaining.pop(0)
        if expression.label not in labels:
            labels.add(expression.label)
            yield expression
            remaining += expression.children


def _plain_names(expressions: Sequence[Any]) -> dict[str, str]:
    """Name of each variable of the stream without tracr's number; a repeated name gets a number by its order."""
    names: dict[str, str] = {}
    for expression in expressions:
        name = expression.name.replace(":", " ")
        number = sum(taken == name or taken.startswith(f"{name} #") for taken in names.values())
        names[expression.label] = f"{name} #{number + 1}" if number else name
    shares = {f"{label}{ATTENDED}": f"{name} (share)" for label, name in names.items()}
    return names | shares


def _in_order(model: Program, program: RaspProgram, names: dict[str, str]) -> Program:
    """The same model with plain names; tokens, coordinates, hidden units and answers in a fixed order."""
    residual = []
    for label in model.residual:
        variable, colon, value = label.partition(":")
        residual.append(f"{names.get(variable, variable)}{colon}{value}")
    coordinates = sorted(range(len(residual)), key=lambda index: _label_order(residual[index]))
    token_names = [*map(str, program.tokens), model.bos, model.pad]
    tokens = [model.tokens.index(str(name)) for name in token_names]
    answers = list(range(len(model.output_values or [""])))
    if model.output_values is not None:
        answers.sort(key=lambda index: _value_order(model.output_values[index]))  # type: ignore[index]
    weights = {name: weight.copy() for name, weight in model.weights.items()}
    # Coordinates, tokens and answers
    for name in ("W_Q", "W_K", "W_V", "W_in"):
        weights[name] = weights[name][..., coordinates, :]
    for name in ("W_E", "W_pos", "W_O", "W_out"):
        weights[name] = weights[name][..., coordinates]
    weights["W_E"] = weights["W_E"][tokens]
    weights["W_U"] = weights["W_U"][coordinates][:, answers]
    # Hidden units can be exchanged: sort them by their weights, the unused ones last
    for layer, (w_in, w_out) in enumerate(zip(weights["W_in"], weights["W_out"], strict=True)):
        units = np.concatenate([w_in, w_out.T])
        order = np.lexsort(-units[::-1]) if len(units.T) else np.arange(0)
        weights["W_in"][layer], weights["W_out"][layer] = w_in[:, order], w_out[order]
    values = None if model.output_values is None else tuple(model.output_values[index] for index in answers)
    return replace(
        model,
        name=program.name,
        description=program.description,
        source=SOURCE,
        tokens=tuple(map(str, token_names)),
        residual=tuple(residual[index] for index in coordinates),
        output_values=values,
        weights={name: np.ascontiguousarray(weight) for name, weight in weights.items()},
    )


def _label_order(label: str) -> tuple[str, tuple[int, float, str]]:
    """Coordinates are sorted by variable, then by value."""
    variable, _, value = label.partition(":")
    return variable, _value_order(value)


def _value_order(value: str) -> tuple[int, float, str]:
    """Numbers by size, then texts."""
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def _examples(model: Program, program: RaspProgram, words: Sequence[Word]) -> dict[str, np.ndarray]:
    """Token ids and answers of words."""
    pos = max(program.lengths) + 1
    ids = {name: index for index, name in enumerate(model.tokens)}
    tokens = np.full((len(words), pos), ids[model.pad], dtype=np.int64)
    tokens[:, 0] = ids[str(model.bos)]
    targets: Shaped[np.ndarray, "example pos"]
    targets = np.full((len(words), pos), np.nan, np.float32) if model.numerical else np.full((len(words), pos), -1)
    for row, word in enumerate(words):
        tokens[row, 1 : len(word) + 1] = [ids[str(token)] for token in word]
        for position, answer in enumerate(program.statement(word), start=1):
            if answer is not None and model.output_values is None:
                targets[row, position] = answer
            elif answer is not None:
                targets[row, position] = _answer_index(model, program, str(answer))
    return {"examples": tokens, "targets": targets}


def _answer_index(model: Program, program: RaspProgram, answer: str) -> int:
    """Class of an answer."""
    values = model.output_values or ()
    if answer not in values:
        raise ValueError(
            f"the program {program.name!r} states {answer!r}, which its compiled model cannot answer; it has "
            f"{', '.join(values)}."
        )
    return values.index(answer)


def _selectors(model: Program, expressions: Sequence[Any], names: dict[str, str]) -> list[Selection]:
    """The heads of a model, with the selectors that they were compiled from."""
    with_selector = {
        names[expression.label]: expression for expression in expressions if hasattr(expression, "selector")
    }
    selections = []
    for layer, head in np.argwhere((model.weights["W_O"] != 0).any((2, 3))).tolist():
        written = (model.weights["W_O"][layer, head] != 0).any(0)
        (variable,) = [name for name, places in model.variables.items() if written[list(places)].any()]
        counts = variable not in with_selector
        expression = with_selector[variable.removesuffix(" (share)")]
        select = expression.selector
        predicate = getattr(select.predicate, "name", select.name)
        selector = Selector(
            layer=layer,
            head=head,
            writes=(variable,),
            reads=("tokens",) if counts else (names[expression.sop.label],),
            selects=f"{names[select.keys.label]} {predicate} {names[select.queries.label]}",
            counts=counts,
        )
        selections.append(Selection(selector, select.keys, select.queries, select.predicate))
    return selections


def _relations(
    model: Program, selections: Sequence[Selection], words: Sequence[Word]
) -> Bool[np.ndarray, "selector word query key"]:
    """Keys that the program's selectors select, by tracr's evaluator of keys and queries."""
    from tracr.rasp import causal_eval, rasp

    evaluate = causal_eval.evaluate if model.causal else rasp.evaluate
    pos = model.examples.shape[1]
    relations = np.zeros((len(selections), len(words), pos, pos), dtype=bool)
    for selection, of_words in zip(selections, relations, strict=True):
        for word, selected in zip(words, of_words, strict=True):
            keys, queries = evaluate(selection.keys, word), evaluate(selection.queries, word)
            for row, query in enumerate(queries, start=1):
                visible = keys[:row] if model.causal else keys
                for column, key in enumerate(visible, start=1):
                    is_known = key is not None and query is not None
                    selected[row, column] = is_known and bool(selection.predicate(key, query))
    return relations


@torch.no_grad()
def _check(model: Program, program: RaspProgram, words: Sequence[Word]) -> None:
    """Check answers and attention of a compiled model on every input.

    Raises:
        ValueError: an answer is not the program's, or a head does not attend to the keys that its selector selects.
    """
    tokens = torch.from_numpy(model.examples)
    real = tokens != model.tokens.index(model.pad)
    logits, cache = network(model).run_with_cache(tokens, attention_mask=real)
    # Answers; where the program has none, no class is present
    wrong = _wrong_answers(model, logits)
    wrong[:, 0] = False
    wrong &= real.numpy()
    if wrong.any():
        row, position = map(int, np.argwhere(wrong)[0])
        raise ValueError(
            f"the compiled model of {program.name!r} is wrong at position {position} of {words[row]}: the program "
            f"states {program.statement(words[row])[position - 1]!r}. tracr does not support what it uses, or its "
            f"statement is wrong."
        )
    # Attention is even over the selected keys, and the first token where a head counts or selects nothing
    for selector, keys in zip(model.selectors, model.relations, strict=True):
        expected = torch.from_numpy(keys).float()
        expected[..., 0] = 1.0 if selector.counts else (expected.sum(-1) == 0).float()
        expected /= expected.sum(-1, keepdim=True)
        pattern = cache[f"blocks.{selector.layer}.attn.hook_pattern"][: len(keys), selector.head]
        differs = ((pattern - expected).abs().amax(-1) > PRECISION) & real[: len(keys)]
        differs[:, 0] = False
        if differs.any():
            row, position = differs.nonzero()[0].tolist()
            raise ValueError(
                f"head {selector.layer}.{selector.head} of the compiled model of {program.name!r} does not attend to "
                f"what its selector ({selector.selects}) selects, at position {position} of {words[row]}."
            )


def _wrong_answers(model: Program, logits: Float[Tensor, "word pos out"]) -> Bool[np.ndarray, "word pos"]:
    """Where a model's answer is not the target."""
    if model.numerical:
        errors = np.abs(logits[..., 0].numpy() - model.targets)
        return ~(errors <= PRECISION)
    answers: Int[Tensor, "word pos"] = torch.where(logits.amax(-1) > LEAST, logits.argmax(-1), -1)
    return answers.numpy() != model.targets
