"""LEGO chains as known answers: the loop that follows a chain, and what can be added without its doing anything.

Each function gives a model that solves its task exactly (`shortcut`: its last variable), and the truth of every head.
"""

from collections.abc import Iterable, Mapping

import torch

from hooks import Transformer
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.craft.idle_heads import write_idle_head
from interp.known_answers.craft.surgery import enlarge
from interp.known_answers.craft.wiring import head_rows
from interp.known_answers.lego.loop import ASSOCIATION, MANIPULATION, lego_loop
from interp.known_answers.lego.shortcut import COUNT, ELSEWHERE, lego_shortcut
from interp.tasks import Lego
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic
from interp.tasks.lego.task import LETTERS

IDLE_REGISTERS = 6
"""Coordinates that idle heads write and nobody reads."""
WIDEST = 0.5
"""Scores of idle heads spread up to this much between unit vectors: too little to single a key out."""
KINDS = {ASSOCIATION: "association", MANIPULATION: "manipulation"}
"""What the two heads of the loop look like, in every layer."""
IDLE = HeadTruth(truth="idle")


def random_task(generator: torch.Generator, *, group: GroupAction | None = None, longest: int = 4) -> Lego:
    """Chains of 2 to `longest` variables with 8 to 26 letters, over Z2, S3 or Z3.

    Chains of 2 have at least 16 letters: of fewer there are so few sentences that a split is no fair sample.

    Args:
        generator: Decides the task.
        group: This one instead of a random one.
        longest: Most variables.
    """

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    n_vars = draw(2, longest)
    letters = LETTERS[: draw(16 if n_vars == 2 else 8, 26)]
    chosen = (Z2, S3, cyclic(3))[draw(0, 2)]
    return Lego(n_vars=n_vars, group=chosen if group is None else group, alphabet=letters)


def loop(task: Lego, generator: torch.Generator, *, idle: int = 0, untie: bool = False) -> KnownAnswer:
    """The loop by itself: every second layer of a head does the work, and the head looks the same in the others.

    Args:
        task: Any in the paper's format.
        generator: Decides idle heads.
        idle: Further heads per layer that look nowhere in particular and write what nobody reads.
        untie: A block for each layer. They differ in their idle heads.

    Raises:
        ValueError: the compact format.
    """
    model = enlarged_loop(task, generator, idle=idle, untie=untie)
    return loop_answer("loop", task, model, {})


def redundant(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop with two association heads, alike to the last weight: either will do where one is needed.

    Two votes that differ cannot be told apart: one head replaced by its mean costs nothing, but one that brings another
    sequence's values does harm.

    Args:
        task: Any in the paper's format.
        generator: Decides idle heads.
        idle: Further heads per layer that look nowhere in particular and write what nobody reads.

    Raises:
        ValueError: the compact format.
    """
    model = enlarged_loop(task, generator, idle=idle, heads=1)
    block, twin = model.block(0), 2
    copy_pattern(model, 0, ASSOCIATION, twin)
    rows, source = head_rows(block, twin), head_rows(block, ASSOCIATION)
    with torch.no_grad():
        block.attention.v.weight[rows] = block.attention.v.weight[source]
        block.attention.o.weight[:, rows] = block.attention.o.weight[:, source]
    truths: dict[Head, HeadTruth] = {}
    for layer in range(model.cfg.n_layers):
        for head, other in ((ASSOCIATION, twin), (twin, ASSOCIATION)):
            truth = HeadTruth(truth="misleading", looks="association")
            if is_needed(task, layer, ASSOCIATION):
                truth = HeadTruth(truth="redundant", looks="association", partners=((layer, other),))
            truths[layer, head] = truth
    return loop_answer("loop with two association heads", task, model, truths)


def shortcut(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The parity of all minus signs instead of the chain: a hidden head counts, another only seems to associate.

    The head that looks at the same letter elsewhere is needed, for it tells that the last variable's letter stands
    nowhere else; but there it has no such letter to look at, and where it has one, nothing depends on it. So its
    pattern is not what it acts through.

    Args:
        task: Any number of variables, over signs (Z2), in the paper's format.
        generator: Decides idle heads.
        idle: Further heads that look nowhere in particular and write what nobody reads.

    Raises:
        ValueError: another group, the compact format, or a single variable, whose letter never stands elsewhere.
    """
    if task.n_vars < 2:
        raise ValueError(f"n_vars is {task.n_vars}; with one variable no letter stands twice, so no head associates.")
    model = enlarge(lego_shortcut(task), heads=idle, registers=IDLE_REGISTERS if idle else 0)
    add_idle_heads(model, task, generator, range(2, 2 + idle))
    truths = {(0, head): IDLE for head in range(2, 2 + idle)}
    truths[0, COUNT] = HeadTruth(truth="hidden")
    truths[0, ELSEWHERE] = HeadTruth(truth="misleading", looks="association")
    return KnownAnswer(
        name=_name("shortcut", task, model),
        model=model,
        task=task,
        heads=dict(sorted(truths.items())),
        readable={task.targets[-1]: 1},
    )


def enlarged_loop(
    task: Lego,
    generator: torch.Generator,
    *,
    idle: int,
    heads: int = 0,
    registers: int = 0,
    layers: int = 0,
    untie: bool = False,
) -> Transformer:
    """The loop with idle heads, and with room for others.

    Args:
        task: Any in the paper's format.
        generator: Decides idle heads.
        idle: Idle heads for each block, which come last.
        heads: Empty heads for each block, numbers 2, 3, ...
        registers: New coordinates of the stream, from coordinate `loop_registers(task).d_model - 1` on.
        layers: Empty layers at the end.
        untie: A block for each layer.

    Raises:
        ValueError: the compact format, or more layers without `untie`.
    """
    more = registers + (IDLE_REGISTERS if idle else 0)
    model = enlarge(lego_loop(task), heads=heads + idle, registers=more, layers=layers, untie=untie)
    add_idle_heads(model, task, generator, range(2 + heads, 2 + heads + idle))
    return model


def add_idle_heads(model: Transformer, task: Lego, generator: torch.Generator, heads: Iterable[int]) -> None:
    """Write idle heads into every block: they read letters and positions, which say nothing of any value.

    Args:
        model: Has `IDLE_REGISTERS` that nobody reads just before its last coordinate; changed in place.
        task: Gives the tokens, whose register comes first, positions second.
        generator: Decides the weights.
        heads: Which ones, the same in every block.
    """
    reads = slice(task.vocab.ids[task.alphabet[0]], task.d_vocab + task.n_ctx)
    last = model.cfg.d_model - 1
    writes = slice(last - IDLE_REGISTERS, last)
    for block in model.stored_blocks:
        for head in heads:
            strength = WIDEST * float(torch.rand((), generator=generator))
            write_idle_head(block, head, reads=reads, writes=writes, generator=generator, strength=strength)


@torch.no_grad()
def copy_pattern(model: Transformer, layer: int, source: int, head: int) -> None:
    """Give a head of a layer the queries and keys of another head there."""
    block = model.block(layer)
    for linear in (block.attention.q, block.attention.k):
        linear.weight[head_rows(block, head)] = linear.weight[head_rows(block, source)]
        if linear.bias is not None:
            linear.bias[head_rows(block, head)] = linear.bias[head_rows(block, source)]


def is_needed(task: Lego, layer: int, head: int) -> bool:
    """Whether that layer's association or manipulation head does any work: one gathers, the next carries."""
    return layer < 2 * task.n_vars - 1 and (layer % 2 == 1) == (head == ASSOCIATION)


def loop_answer(name: str, task: Lego, model: Transformer, others: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """The truth of a loop whose first heads are association and manipulation.

    Args:
        name: What was planted.
        task: What the loop solves.
        model: The loop, enlarged.
        others: What differs; heads beyond the loop's own, in its layers or after them, are idle where this is silent.
    """
    truths = dict.fromkeys(
        ((layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)), IDLE
    )
    for layer in range(2 * task.n_vars - 1):
        for head, kind in KINDS.items():
            truth = "faithful" if is_needed(task, layer, head) else "misleading"
            truths[layer, head] = HeadTruth(truth=truth, looks=kind)
    readable = {target: 2 * index + 1 for index, target in enumerate(task.targets)}
    heads = truths | dict(others)
    return KnownAnswer(name=_name(name, task, model), model=model, task=task, heads=heads, readable=readable)


def _name(name: str, task: Lego, model: Transformer) -> str:
    cfg = model.cfg
    size = f"{cfg.n_layers} layers of {cfg.n_heads} heads"
    return f"{name}, {task.n_vars} variables over {task.group.name}, {size}"
