"""Claims about random sets of templates: the kernel matrix N and the attention kernel of each (Lemmas 4.6 and 4.7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence, Size
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast
from case_studies.recipes.judges import Share
from interp.core.randomness import derived_seed
from interp.tasks import Template
from interp.tasks.template.families import random_templates
from interp.theory.kernels.random_features import Kernel, TransformerKernel
from interp.theory.kernels.template_matrix import template_matrix

SETS: dict[Size, int] = {"quick": 10, "standard": 200, "paper": 200}
ALMOST_ALL = 0.95
"""Share of the sets for which a lemma about all sets must be seen; draws leave some undecided."""
COUNTS, LENGTHS, WILDCARDS, FIXED = (2, 3, 4), (2, 3, 4, 5), (2, 3, 4), (0, 1, 2)
"""What the number of templates, their length, and the numbers of wildcards and fixed tokens are drawn from."""
DRAWN_FROM = (
    f"Sets of {COUNTS[0]} to {COUNTS[-1]} templates of {LENGTHS[0]} to {LENGTHS[-1]} tokens over {WILDCARDS[0]} to "
    f"{WILDCARDS[-1]} wildcards and {FIXED[0]} to {FIXED[-1]} fixed tokens."
)
BETA, GAMMA, B1, B2 = (1.0, 4.0), (0.5, 1.5), (0.5, 2.0), (0.1, 1.4)
"""Ranges that the parameters of each set's kernel are drawn from, uniformly."""
DRAWS, COPIES, REPEATS, MOST_REPEATS = 1024, 12, 16, 256
"""Random features per repeat, strings per template, and sets of random features: more of them while a set is undecided,
four times as many at each step."""
ALPHABET = 4096
"""Training symbols of each set."""


@dataclass(frozen=True, kw_only=True)
class TemplateSet:
    """A random set of disjoint templates, and a kernel with random parameters."""

    task: Template
    kernel: TransformerKernel
    seed: int

    @property
    def text(self) -> str:
        """The templates in a few words."""
        return ", ".join(template.text for template in self.task.labelled)


def template_sets(seed: int, count: int) -> list[TemplateSet]:
    """Random sets of disjoint templates, each with random labels and parameters of the kernel.

    Args:
        seed: Decides everything.
        count: Number of sets.
    """
    sets: list[TemplateSet] = []
    draw = 0
    while len(sets) < count:
        set_seed = derived_seed(seed, "template set", draw)
        draw += 1
        rng = np.random.default_rng(set_seed)
        n_templates, length, n_wildcards, n_fixed = (int(rng.choice(x)) for x in (COUNTS, LENGTHS, WILDCARDS, FIXED))
        beta, gamma, b1, b2 = (float(rng.uniform(*ends)) for ends in (BETA, GAMMA, B1, B2))
        try:
            templates = random_templates(
                n_templates, length=length, n_wildcards=n_wildcards, n_fixed=n_fixed, seed=set_seed
            )
        except ValueError:
            continue  # there are not that many templates of this length
        task = Template(templates=templates, train=ALPHABET)
        kernel = TransformerKernel(beta=beta, gamma=gamma, activation="cosine", b1=b1, b2=b2, n_draws=DRAWS)
        sets.append(TemplateSet(task=task, kernel=kernel, seed=set_seed))
    return sets


def is_nonsingular(template_set: TemplateSet) -> bool:
    """Whether N of the set is nonsingular for its kernel, beyond the error of the draws (Lemma 4.6)."""
    for repeats in _growing_repeats():
        matrix = template_matrix(
            template_set.task, template_set.kernel, copies=COPIES, repeats=repeats, seed=template_set.seed
        )
        if matrix.verdict == "nonsingular":
            return True
    return False


def is_nondegenerate(template_set: TemplateSet) -> bool:
    """Whether K_attn summed over templates differs from that of every permutation of them (Lemma 4.7, Equation 9).

    That is, sum_i K_attn(x_i, y_i) - sum_i K_attn(x_i, y_p(i)) is not 0 for any permutation p but the identity, where
    x_i and y_i are strings of template i without common symbols; t tests over sets of draws, Bonferroni over p.
    """
    for repeats in _growing_repeats():
        matrices = attention_matrices(template_set.kernel, template_set.task, seed=template_set.seed, repeats=repeats)
        if smallest_test(permutation_differences(matrices)) > 1:
            return True
    return False


def _growing_repeats() -> Sequence[int]:
    """Numbers of sets of draws to try, one after another."""
    steps = [REPEATS]
    while steps[-1] < MOST_REPEATS:
        steps.append(4 * steps[-1])
    return steps


def attention_matrices(
    kernel: Kernel, task: Template, *, seed: int, repeats: int
) -> Float[np.ndarray, "repeat template template"]:
    """K_attn between strings of every two templates without common symbols, for several sets of draws."""
    strings = task.disjoint_strings(COPIES)
    n_templates, half = len(strings), COPIES // 2
    first, second = strings[:, :half].flatten(0, 1), strings[:, half:].flatten(0, 1)
    matrices = []
    for repeat in range(repeats):
        with_draws = TransformerKernel(**{**vars(kernel), "seed": derived_seed(seed, "attention", repeat)})
        attention = with_draws.attention(first, second)
        matrices.append(attention.reshape(n_templates, half, n_templates, half).mean((1, 3)))
    return np.stack(matrices)


def permutation_differences(
    matrices: Float[np.ndarray, "repeat template template"],
) -> Float[np.ndarray, "repeat permutation"]:
    """The trace of each matrix minus its sum along every permutation but the identity."""
    n_templates = matrices.shape[-1]
    rows = np.arange(n_templates)
    identity, *not_identity = permutations(range(n_templates))
    trace = matrices[:, rows, list(identity)].sum(-1)
    return np.stack([trace - matrices[:, rows, list(permutation)].sum(-1) for permutation in not_identity], axis=1)


def smallest_test(differences: Float[np.ndarray, "repeat permutation"]) -> float:
    """The least of |mean| / half width of the 95 % intervals, Bonferroni over permutations; above 1 none includes 0."""
    repeats, count = differences.shape
    errors = differences.std(0, ddof=1) / np.sqrt(repeats)
    half = errors * float(stats.t.isf(0.025 / count, repeats - 1))
    means = np.abs(differences.mean(0))
    return float(np.min(means / np.maximum(half, 1e-300)))


def measure_sets(evidence: Evidence, *, test: Callable[[TemplateSet], bool]) -> Readings:
    """Whether random sets pass a test, one row a set.

    Draws cannot prove a zero, so sets that do not pass are undecided: the interval ends at that of the share if all of
    them passed.

    Args:
        evidence: Gives size and seed.
        test: The test of a set.
    """
    sets = template_sets(evidence.seed, SETS[evidence.size])
    frame = pd.DataFrame(
        [
            {
                **parameters_of(template_set),
                "number of templates": len(template_set.task.labelled),
                PASSES: test(template_set),
            }
            for template_set in sets
        ]
    )
    by_size = {
        str(size): f"{passes.sum()} of {len(passes)}" for size, passes in frame.groupby("number of templates")[PASSES]
    }
    undecided = frame.loc[~frame[PASSES].to_numpy()]
    return Readings(
        frame=frame,
        table=undecided,
        title="Sets that do not pass",
        numbers={"sets that pass, by number of templates": by_size, "other sets": len(undecided)},
        note=DRAWN_FROM,
    )


def parameters_of(template_set: TemplateSet) -> dict[str, Any]:
    """The columns that describe a set: its templates, and the parameters of its kernel."""
    kernel = template_set.kernel
    return {"templates": template_set.text, **{name: getattr(kernel, name) for name in ("beta", "gamma", "b1", "b2")}}


PASSES = "passes"
MANY_SETS = "A share of almost all sets takes more than 70 of them."
HOW = "random sets of disjoint templates, each with random parameters of the kernel"


def _claim(name: str, test: Callable[[TemplateSet], bool], **fields) -> Claim:
    return Claim(
        id=f"kernel.sets.{name}",
        rule=AtLeast(ALMOST_ALL),
        preregistration=Preregistration(
            "after first models", "twelve sets of another seed, none of which is judged: all of them pass."
        ),
        quantity="share of template sets",
        value_range=SHARE,
        measure=partial(measure_sets, test=test),
        judged=Share(PASSES, unit="template sets", undecided=False),
        sizes=LARGE_SIZES,
        sizes_reason=MANY_SETS,
        **fields,
    )


CLAIMS = (
    _claim(
        "nonsingular",
        is_nonsingular,
        method=f"Share of {HOW}, whose N is nonsingular beyond the error of the kernel's draws (its smallest "
        "eigenvalue by the jackknife), exact interval, in which undecided sets may be either",
    ),
    _claim(
        "nondegenerate",
        is_nondegenerate,
        method=f"Share of {HOW}, for which no permutation has a difference of 0 within the 95 % interval over sets of "
        "draws, Bonferroni over permutations, exact interval, in which undecided sets may be either",
    ),
)
