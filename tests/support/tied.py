"""Planted models for the causal checks of probes: a label that is read, and a nuisance tied to it that nothing reads.

Every label is the sum of two tokens, so that no untrained model can read it. The stream at the target is a sum of
codes, one of each label; which of them the answer is computed from is known.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer, TransformerConfig
from interp.tasks import Task
from interp.tasks.base import Batch
from interp.tasks.vocab import Vocab

N_NOISE = 4
"""Tokens that no label depends on; the control task is about these."""


@dataclass(frozen=True, kw_only=True)
class Tied(Task):
    """Labels of one target. The answer is a function of those that are read; the nuisance is tied to the first."""

    read: tuple[int, ...] = (2,)
    """Number of classes of each label that is read."""
    nuisance: int = 2
    """Number of classes of the nuisance."""
    tie: float = 0.0
    """Share of the examples in which the nuisance is a function of the label that it is tied to."""
    rule: str = "first"
    """How the answer is computed: `first`, `sum`, `and` (two labels with two classes)."""
    tied_to: str = "read 1"
    """What the nuisance is tied to: a label that is read, or `answer`."""
    hidden: bool = False
    """Whether there is a further label with two classes that is not listed."""
    lists_answer: bool = False
    """Whether the answer is a label where no label that is read equals it."""
    missing: float = 0.0
    """Share of the examples without the target; then there is a second target that all have."""

    disjoint_splits = False
    attention = "causal"

    @property
    def sizes(self) -> dict[str, int]:
        """Number of classes of each label."""
        names = {f"read {index}": size for index, size in enumerate(self.read, start=1)}
        return names | {"nuisance": self.nuisance} | ({"hidden": 2} if self.hidden else {})

    @property
    def vocab(self) -> Vocab:
        return Vocab(tuple(str(number) for number in range(max(*self.sizes.values(), 2))))

    @property
    def targets(self) -> tuple[str, ...]:
        return ("last", "same") if self.missing else ("last",)

    @property
    def n_ctx(self) -> int:
        return 2 * len(self.sizes) + N_NOISE

    @property
    def d_vocab_out(self) -> int:
        return self.read[0]

    def sample(self, n, *, generator, split="train"):
        values = {name: torch.randint(size, (n,), generator=generator) for name, size in self.sizes.items()}
        source = self.answer(values) if self.tied_to == "answer" else values[self.tied_to]
        is_tied = torch.rand(n, generator=generator) < self.tie
        values["nuisance"] = torch.where(is_tied, source % self.nuisance, values["nuisance"])
        columns = []
        for name, size in self.sizes.items():
            first = torch.randint(size, (n,), generator=generator)
            columns += [first, (values[name] - first) % size]
        noise = torch.randint(2, (n, N_NOISE), generator=generator)
        tokens = torch.cat([torch.stack(columns, 1), noise], 1)
        n_targets = len(self.targets)
        mask = None
        if self.missing:
            mask = torch.ones(n, 2, dtype=torch.bool)
            mask[:, 0] = torch.rand(n, generator=generator) >= self.missing
        positions = torch.full((n, n_targets), self.n_ctx - 1)
        labels = self.answer(values)[:, None].expand(n, n_targets)
        if mask is not None:
            positions, labels = positions * mask, labels * mask
        return Batch(
            tokens=tokens,
            target_positions=positions,
            labels=labels,
            supervised=torch.ones(n_targets, dtype=torch.bool),
            target_mask=mask,
        )

    def values(self, tokens: Int[Tensor, "batch pos"]) -> dict[str, Int[Tensor, " batch"]]:
        """Every label of the inputs, and of those that are not listed."""
        return {
            name: (tokens[:, 2 * index] + tokens[:, 2 * index + 1]) % size
            for index, (name, size) in enumerate(self.sizes.items())
        }

    def answer(self, values: dict[str, Int[Tensor, " batch"]]) -> Int[Tensor, " batch"]:
        """The right answer."""
        read = [values[f"read {index}"] for index in range(1, len(self.read) + 1)]
        if self.hidden:
            read.append(values["hidden"])
        if self.rule == "first":
            return read[0]
        total = torch.stack(read).sum(0)
        return (total == len(read)).long() if self.rule == "and" else total % self.d_vocab_out

    def probe_labels(self, batch):
        values = self.values(batch.tokens)
        hidden = values.pop("hidden", None)
        labels = {name: value[:, None].expand(batch.labels.shape) for name, value in values.items()}
        if self.lists_answer:
            full = values if hidden is None else values | {"hidden": hidden}
            labels["answer"] = self.answer(full)[:, None].expand(batch.labels.shape)
        return labels


class Planted(Transformer):
    """A stream that is a sum of codes of the labels from the embedding on, and the answers read from it.

    Args:
        task: The task.
        codes: The code of each class of each label, and of each noise token as `noise 1`, ....
        readers: For `first`: the weights of each answer and its bias are read linearly. For other rules, directions of
            the labels that are read, whose products with the stream are -1 or 1: a layer computes the answer.
    """

    def __init__(
        self,
        task: Tied,
        codes: dict[str, Float[Tensor, "class d_model"]],
        *,
        weights: Float[Tensor, "d_model answer"],
        bias: Float[Tensor, " answer"],
        mlp: tuple[Tensor, Tensor, Tensor] | None = None,
    ):
        width = next(iter(codes.values())).shape[1]
        cfg = TransformerConfig(
            d_vocab=len(task.vocab),
            d_vocab_out=task.d_vocab_out,
            n_ctx=task.n_ctx,
            d_model=width,
            d_mlp=4,
            n_heads=1,
            n_layers=1,
            attention="causal",
            block="no_norm",
            activation="relu",
        )
        super().__init__(cfg)
        self.task, self.codes = task, codes
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            if mlp is not None:
                w_in, b_in, w_out = mlp
                layer = self.block(0).mlp
                layer.w_in.weight.copy_(w_in)
                layer.w_in.bias.copy_(b_in)
                layer.w_out.weight.copy_(w_out)
            self.unembed.weight.copy_(weights.T)
            self.unembed.bias.copy_(bias)
        self.add_hook("hook_embed", self._write, is_permanent=True)

    def _write(self, resid, hook):
        values = self.task.values(self.tokens)
        values["answer"] = self.task.answer(values)
        stream = torch.zeros(len(self.tokens), resid.shape[-1], device=resid.device)
        for name, codes in self.codes.items():
            value = self.tokens[:, -int(name.split()[1])] if name.startswith("noise") else values[name]
            stream = stream + codes.to(stream)[value]
        # at the last position; elsewhere there is nothing
        written = torch.zeros_like(resid)
        written[:, -1] = stream
        return written

    def forward(self, tokens, *args, **inputs):
        self.tokens = tokens
        return super().forward(tokens, *args, **inputs)


WIDTH = 48
SIGNS = torch.tensor([[-1.0], [1.0]])
"""Codes of two classes in one dimension."""


def registers(width: int = WIDTH, *, seed: int = 0) -> Float[Tensor, "d_model d_model"]:
    """Orthonormal directions, as rows."""
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed))).Q


def simplex(size: int) -> Float[Tensor, "class class"]:
    """Codes of several classes at equal distances, with a mean of 0."""
    return torch.eye(size) - 1 / size


def circle(size: int, *, start: float = 0.0) -> Float[Tensor, "class two"]:
    """Codes of several classes on a circle."""
    angle = 2 * torch.pi * torch.arange(size) / size + start
    return torch.stack([angle.cos(), angle.sin()], 1)


def nearest(codes: Float[Tensor, "class d_model"]) -> tuple[Tensor, Tensor]:
    """Weights and bias that read the class with the nearest code: x c - c c / 2."""
    return codes.T, -codes.square().sum(1) / 2


def noise_codes(rows: Float[Tensor, "noise d_model"], scale: float = 1.0) -> dict[str, Tensor]:
    """A direction for each noise token."""
    return {f"noise {index}": scale * SIGNS @ row[None] for index, row in enumerate(rows[:N_NOISE], start=1)}


def linear(
    task: Tied,
    read: Float[Tensor, "class dim"],
    nuisance: Float[Tensor, "class dim"],
    *,
    cosine: float = 0.0,
    scale: float = 1.0,
    read_scale: float = 1.0,
    noise: float = 1.0,
    width: int = WIDTH,
) -> Planted:
    """A model whose answer is the first label, read along directions in which the nuisance has no part.

    Args:
        read: Codes of the label that is read.
        nuisance: Codes of the nuisance.
        cosine: Cosine of the first direction of the nuisance and that of the label that is read.
        scale, read_scale, noise: Factors of the nuisance's codes, of the label's, and of the noise tokens'.
        width: Width of the stream.
    """
    basis = registers(width)
    n_read, n_nuisance = read.shape[1], nuisance.shape[1]
    read_rows, rest = basis[:n_read].clone(), basis[n_read:]
    nuisance_rows = rest[:n_nuisance].clone()
    # The nuisance's first direction overlaps with that of the label; the label is read along the dual direction.
    sine = (1 - cosine**2) ** 0.5
    readers = read_rows.clone()
    readers[0] = read_rows[0] - cosine / sine * nuisance_rows[0]
    nuisance_rows[0] = cosine * read_rows[0] + sine * nuisance_rows[0]
    codes = {"read 1": read_scale * read @ read_rows, "nuisance": scale * nuisance @ nuisance_rows}
    codes |= noise_codes(rest[n_nuisance:], noise)
    weights, bias = nearest(read_scale * read)
    return Planted(task, codes, weights=readers.T @ weights, bias=bias)


def two_bits(task: Tied, *, second: str = "read 2", second_scale: float = 1.0) -> Planted:
    """A model that computes the answer in an MLP, from the first label and a second one that are in registers."""
    basis = registers()
    first, other, nuisance, output = basis[:4]
    codes = {"read 1": SIGNS @ first[None], second: second_scale * SIGNS @ other[None]}
    codes |= {"nuisance": SIGNS @ nuisance[None]} | noise_codes(basis[4:])
    other = other / second_scale
    if task.rule == "and":
        w_in = torch.stack([first + other, 0 * first, 0 * first, 0 * first])
        b_in = torch.tensor([-1.0, 0, 0, 0])
    else:
        w_in = torch.stack([first - other, other - first, 0 * first, 0 * first])
        b_in = torch.zeros(4)
    w_out = output[:, None].expand(-1, 4)
    weights = torch.stack([0 * output, output], 1)
    bias = torch.tensor([0.0, -0.5])
    return Planted(task, codes, weights=weights, bias=bias, mlp=(w_in, b_in, w_out))


def computed(task: Tied) -> Planted:
    """Two bits are in registers that nothing reads; their exclusive or, which is not listed, is in one that is read."""
    basis = registers()
    codes = {name: SIGNS @ basis[[index]] for index, name in enumerate(("read 1", "read 2", "nuisance", "answer"))}
    codes |= noise_codes(basis[4:])
    weights, bias = nearest(codes["answer"])
    return Planted(task, codes, weights=weights, bias=bias)


def tied_models(tie: float) -> dict[str, tuple[Tied, Planted]]:
    """Twenty models and their tasks, by geometry. What is read of each: see `truly_read`."""
    plain = Tied(tie=tie)
    models: dict[str, tuple[Tied, Planted]] = {}

    def add(name, task, model):
        models[name] = task, model

    add("orthogonal", plain, linear(plain, SIGNS, SIGNS))
    for cosine in (0.5, 0.9, -0.7):
        add(f"cosine {cosine}", plain, linear(plain, SIGNS, SIGNS, cosine=cosine))
    add("narrow", plain, linear(plain, SIGNS, SIGNS, cosine=0.5, width=16))
    for scale in (5, 0.2):
        add(f"nuisance times {scale}", plain, linear(plain, SIGNS, SIGNS, scale=scale))
    add("read times 5", plain, linear(plain, SIGNS, SIGNS, read_scale=5.0))
    add("loud noise", plain, linear(plain, SIGNS, SIGNS, noise=3.0))
    for read, nuisance in ((4, 2), (3, 3), (2, 4)):
        task = Tied(tie=tie, read=(read,), nuisance=nuisance)
        add(f"{read} and {nuisance} classes", task, linear(task, simplex(read), simplex(nuisance)))
    task = Tied(tie=tie, read=(4,), nuisance=4)
    square = torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]])
    add("on a square", task, linear(task, square, square, cosine=0.3))
    task = Tied(tie=tie, read=(6,), nuisance=6)
    add("on circles", task, linear(task, circle(6), circle(6, start=0.3), cosine=0.6, noise=0.2, width=96))
    task = Tied(tie=tie, missing=0.4)
    add("missing targets", task, linear(task, SIGNS, SIGNS))
    task = Tied(tie=tie, read=(2, 2), rule="sum", lists_answer=True)
    add("exclusive or", task, two_bits(task))
    task = Tied(tie=tie, read=(2, 2), rule="sum", tied_to="answer")
    add("tied to an exclusive or", task, computed(task))
    task = Tied(tie=tie, read=(2, 2), rule="and", lists_answer=True)
    add("and", task, two_bits(task))
    task = Tied(tie=tie, read=(2, 2), rule="and", tied_to="answer", lists_answer=True)
    add("tied to an and", task, two_bits(task))
    task = Tied(tie=tie, rule="sum", hidden=True)
    add("hidden times 5", task, two_bits(task, second="hidden", second_scale=5.0))
    return models


def truly_read(name: str, task: Tied) -> list[str]:
    """Labels that are in a register that is read."""
    return [] if name == "tied to an exclusive or" else [f"read {index + 1}" for index in range(len(task.read))]
