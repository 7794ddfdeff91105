"""The chain of a LEGO sentence: parse it from the tokens of its clauses, and show it in a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
        """(operand, operation, variable) of every step, starting at the root."""
        operands = (self.root, *self.variables[:-1])
        return tuple(zip(operands, self.operations, self.variables, strict=True))


def chain_section(chain: Chain, points: Sequence[str], answers: Sequence[int]) -> "Section":
    """Section of a report with a sentence, its chain, and the answers of the model.

    Args:
        chain: The chain of the sentence.
        points: Token of each value.
        answers: The model's value of each variable, as an index of `points`.
    """
    from interp.view.chain import chain_svg, sentence_html
    from interp.view.html import scrolling
    from interp.view.page import Section

    # for each clause of the sentence, the index of its variable in the chain
    index_by_clause = {clause: index for index, clause in enumerate(chain.clause_of)}
    chain_index = [index_by_clause[clause] for clause in range(len(index_by_clause))]
    picture = chain_svg(
        root=chain.root,
        variables=chain.variables,
        operations=chain.operations,
        values=chain.values,
        answers=[points[index] if index < len(points) else "no value" for index in answers],
    )
    sentence = sentence_html(chain.words, chain.clause_of_word, chain_index)
    return Section(
        title="Example sentence and its chain",
        text="Every clause defines one variable as an operation on another. The clauses are in random order; the small "
        "number is the position in the chain of the variable that a clause defines. To predict a value, the model must "
        "follow the chain back to the root, or find a shortcut.",
        html=sentence + scrolling(picture, label="Chain"),
    )


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """How the clauses of a sentence are written."""

    n_clauses: int
    clause_length: int
    """Tokens of a clause: 5 as in `a=+b;`, or 3 as in `a+b`."""
    letters: Sequence[str]
    """Names of variables."""
    operations: Sequence[str]
    root: str


def parse_clauses(words: Sequence[str], grammar: Grammar) -> list[tuple[int, int, int]]:
    """Parse a sentence without `[BOS]` and `[EOS]`.

    Args:
        words: Its tokens.
        grammar: How its clauses are written.

    Returns:
        For each variable in chain order: the indices of its letter, its operation and its clause.

    Raises:
        ValueError: a malformed clause, another number of clauses than the grammar has, or clauses that do not form one
            chain.
    """
    length = grammar.clause_length
    if len(words) != length * grammar.n_clauses:
        raise ValueError(f"the sentence has {len(words)} tokens; {grammar.n_clauses} clauses of {length} are needed.")
    # for each operand, a variable or the root: the variable computed from it, the operation and the clause
    steps: dict[str, tuple[str, str, int]] = {}
    clause_of: dict[str, int] = {}
    for clause in range(grammar.n_clauses):
        start = clause * length
        variable, operation, operand = _parse_clause(words[start : start + length], clause, grammar)
        if variable in clause_of:
            clauses = f"{clause_of[variable]} and {clause}"
            raise ValueError(f"{variable!r} is defined by two clauses, {clauses}; define it once.")
        if operand in steps:
            clauses = f"{steps[operand][2]} and {clause}"
            raise ValueError(f"{operand!r} is used by two clauses, {clauses}; a chain does not fork.")
        clause_of[variable] = clause
        steps[operand] = (variable, operation, clause)
    # follow the chain from the root
    chain = []
    operand = grammar.root
    while operand in steps:
        step = steps.pop(operand)
        chain.append(step)
        operand = step[0]
    # a clause that the chain does not reach belongs to a cycle, or to a chain without the root
    if steps:
        unreached_clauses = sorted(clause for _, _, clause in steps.values())
        raise ValueError(f"the clauses do not form one chain: {unreached_clauses} are not reached.")
    # names to indices
    letters, operations = list(grammar.letters), list(grammar.operations)
    return [(letters.index(variable), operations.index(operation), clause) for variable, operation, clause in chain]


def _parse_clause(words: Sequence[str], clause: int, grammar: Grammar) -> tuple[str, str, str]:
    """Variable, operation and operand of one clause."""
    # `a=+b;`, or `a+b`, in which the marks are implied
    has_marks = grammar.clause_length == 5
    if has_marks:
        variable, equals, operation, operand, stop = words
    else:
        variable, operation, operand = words
        equals, stop = "=", ";"
    well_formed = (
        variable in grammar.letters
        and operation in grammar.operations
        and (operand in grammar.letters or operand == grammar.root)
        and (equals, stop) == ("=", ";")
    )
    if not well_formed:
        example = f"{grammar.letters[0]}{'=' * has_marks}{grammar.operations[0]}{grammar.root}"
        raise ValueError(f"clause {clause} is {''.join(words)!r}; it must look like {example!r}.")
    return variable, operation, operand
