"""Parse LEGO sentences from text, and describe the chain of a sentence for display."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.modules.arguments import checks_types
from interp.tasks.lego.task import Lego, LegoBatch

if TYPE_CHECKING:
    from interp.view.page import Section


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The chain of one sentence, by token names: variable i is `operations[i]` applied to variable i - 1."""

    words: tuple[str, ...]
    """The sentence's tokens."""
    root: str
    """Token of the root."""
    variables: tuple[str, ...]
    """Names, in chain order."""
    operations: tuple[str, ...]
    values: tuple[str, ...]
    clause_of: tuple[int, ...]
    """Index of the clause that defines each variable."""
    clause_of_word: tuple[int | None, ...]
    """Clause of each token; None for `[BOS]` and `[EOS]`."""

    @property
    def edges(self) -> tuple[tuple[str, str, str], ...]:
        """(from, operation, to) of every step, starting at the root."""
        before = (self.root, *self.variables[:-1])
        return tuple(zip(before, self.operations, self.variables, strict=True))


def chain_of(task: Lego, batch: LegoBatch, row: int = 0) -> Chain:
    """Return the chain of one sentence of a batch."""
    order = batch.clause_of[row].tolist()
    words = tuple(task.vocab.words(batch.tokens[row]))
    mark = int(task.sentence_format == "paper")
    inside = range(mark, len(words) - mark)
    clause_of_word = [(at - mark) // task.clause_length if at in inside else None for at in range(len(words))]
    return Chain(
        words=words,
        root=task.group.root_token,
        variables=tuple(task.alphabet[index] for index in batch.letters[row].tolist()),
        operations=tuple(task.group.elements[index] for index in batch.operations[row].tolist()),
        values=tuple(task.group.points[index] for index in batch.labels[row].tolist()),
        clause_of=tuple(order),
        clause_of_word=tuple(clause_of_word),
    )


def chain_section(task: Lego, batch: LegoBatch, answers: Int[Tensor, "1 target"]) -> "Section":
    """Section of a report with one sentence, its chain, and the answers of the model."""
    from interp.view.chain import chain_svg, sentence_html
    from interp.view.frame import scrolling
    from interp.view.page import Section

    chain = chain_of(task, batch)
    index_of = {clause: index for index, clause in enumerate(chain.clause_of)}
    picture = chain_svg(
        root=chain.root,
        variables=chain.variables,
        operations=chain.operations,
        values=chain.values,
        answers=[task.group.points[index] for index in answers[0].tolist()],
    )
    sentence = sentence_html(chain.words, chain.clause_of_word, [index_of[c] for c in range(task.n_vars)])
    return Section(
        title="Example sentence and its chain",
        text="Every clause defines one variable as an operation on another. The clauses are in random order; the small "
        "number is the position in the chain of the variable that a clause defines. To predict a value, the model must "
        "follow the chain back to the root, or find a shortcut.",
        html=sentence + scrolling(picture, label="Chain"),
    )


@checks_types
def read_sentence(task: Lego, text: str) -> LegoBatch:
    """Parse one sentence into a batch of one; `[BOS]` and `[EOS]` are optional.

    Raises:
        ValueError: an unknown token, a malformed clause, another number of clauses than the task has, or
            clauses that do not form one chain.
    """
    ids = task.vocab.ids
    words = [word for word in task.vocab.words(task.vocab.encode(text)) if word not in ("[BOS]", "[EOS]")]
    length = task.clause_length
    if len(words) != length * task.n_vars:
        raise ValueError(f"the sentence has {len(words)} tokens; {task.n_vars} clauses of {length} are needed.")
    parent: dict[str, tuple[str, str, int]] = {}
    for clause in range(task.n_vars):
        left, *marks, right = words[clause * length : clause * length + (4 if length == 5 else 3)]
        operation = marks[-1]
        stop = words[clause * length + 4] if length == 5 else ";"
        well_formed = (
            left in task.alphabet
            and operation in task.group.elements
            and (right in task.alphabet or right == task.group.root_token)
            and (length == 3 or (marks[0] == "=" and stop == ";"))
        )
        if not well_formed:
            example = f"{task.alphabet[0]}{'=' * (length == 5)}{task.group.elements[0]}{task.group.root_token}"
            shown = "".join(words[clause * length : (clause + 1) * length])
            raise ValueError(f"clause {clause} is {shown!r}; it must look like {example!r}.")
        twice = [other for name, _, other in parent.values() if name == left]
        if twice:
            raise ValueError(f"{left!r} is defined by two clauses, {twice[0]} and {clause}; define it once.")
        if right in parent:
            raise ValueError(
                f"{right!r} is used by two clauses, {parent[right][2]} and {clause}; a chain does not fork."
            )
        parent[right] = (left, operation, clause)
    at, chain = task.group.root_token, []
    while at in parent:
        step = parent.pop(at)
        chain.append(step)
        at = step[0]
    if parent:
        raise ValueError(f"the clauses do not form one chain: {sorted(s[2] for s in parent.values())} are not reached.")
    content = [[task.alphabet.index(left), ids[op] - ids[task.group.elements[0]], clause] for left, op, clause in chain]
    return task.from_content(torch.tensor([content]))
