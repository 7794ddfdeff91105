"""Claims about the heads of a real pretrained encoder before training on chains (Section 4.2, Figure 7, Section 5).

The weights are those of all-MiniLM-L6-v2: 6 layers of 12 heads, distilled from BERT and then trained to compare
sentences. So units are sentences or heads of one model, and it is not the paper's BERT.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from case_studies.frame.claims import SHARE, Claim, Preregistration
from case_studies.frame.evidence import LARGE_SIZES, Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above, AtLeast
from case_studies.lego.models import SYMBOLS
from case_studies.lego.portion import CONSIDERABLE, PATTERNS
from case_studies.lego.starts import gallery
from case_studies.recipes.intervals import bootstrap_interval, interval_columns
from case_studies.recipes.judges import Row, Share
from case_studies.recipes.pretrained_weights import PretrainedWeights
from hooks import TransformerStack, make_model
from interp.core.randomness import derived_generator
from interp.heads.classify import MIN_SCORE, HeadPatterns, classify_heads
from interp.tasks import Lego
from interp.training.load import load
from interp.training.pretrained import pretrained

WEIGHTS = PretrainedWeights()
N_SENTENCES = 256
N_UNTRAINED = 20
"""Models with fresh weights of the same shape, whose highest scores are the reference."""
LENGTHS = (6, 12)
"""Variables of the chains."""
N_WORDS = 12
"""Random words of a sequence, each of them twice."""
EXCESS, OF_PATTERNS, CORRELATION = "difference in score", "has one of the patterns", "correlation over heads"
NO_TIME = "Reading a real encoder takes longer than this size."
FIRST_LOOK = Preregistration(
    "after a result",
    "a first look at the same weights: association scores .65 (head 1.1) and .61 (2.9) against .007 untrained; 30 "
    "broadcast, 10 manipulation and 2 association heads of 72; .60 and .48 with other tokens; .41 and .35 of the "
    "attention on the twin of a random word, chance .038.",
    looks=1,
)


def _patterns(
    task: Lego, *, seed: int, symbols: Sequence[tuple[str, str]] = ()
) -> tuple[TransformerStack, HeadPatterns]:
    """The pretrained model for chains, and the classification of its heads next to untrained models."""
    model = pretrained(task, WEIGHTS.name, symbols=dict(symbols), seed=seed)
    untrained = [make_model(model.cfg, seed=index) for index in range(N_UNTRAINED)]
    return model, classify_heads(model, task, n=N_SENTENCES, alpha=0.05, untrained=untrained, seed=seed)


def _association(patterns: HeadPatterns) -> int:
    return patterns.kinds.index("association")


def _strongest(scores: Float[np.ndarray, "layer head"], count: int = 2) -> list[tuple[int, int]]:
    """The heads with the highest scores, the highest first."""
    order = np.argsort(scores, axis=None)[::-1][:count]
    return [(int(layer), int(head)) for layer, head in zip(*np.unravel_index(order, scores.shape), strict=True)]


def _names(heads: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{layer}.{head}" for layer, head in heads)


def measure_association(evidence: Evidence, *, n_vars: int, symbols: Sequence[tuple[str, str]] = ()) -> Readings:
    """Association score minus the highest of any head of untrained models, one row a head."""
    task = Lego(n_vars=n_vars)
    model, patterns = _patterns(task, seed=evidence.seed, symbols=symbols)
    kind = _association(patterns)
    scores = patterns.score[:, :, kind]
    untrained = float(patterns.untrained[kind])
    rows = [
        {
            "head": f"{layer}.{head}",
            "label": patterns.label[layer][head],
            **interval_columns(scores[layer, head], EXCESS),
            **dict(zip(patterns.kinds, patterns.score.value[layer, head], strict=True)),
        }
        for layer, head in np.ndindex(scores.value.shape)
    ]
    frame = pd.DataFrame(rows)
    frame[[EXCESS, "low", "high"]] -= untrained
    return Readings(
        frame=frame.assign(sentences=N_SENTENCES),
        title=f"Every head on chains of {n_vars}",
        numbers={
            "highest scores": {_names([head]): float(scores.value[head]) for head in _strongest(scores.value)},
            f"highest score of {N_UNTRAINED} untrained models": untrained,
        },
        charts=[gallery(model, task, patterns, seed=evidence.seed)] if n_vars == LENGTHS[0] and not symbols else [],
        note="Score: attention to other occurrences of the query token, 0 at chance, 1 for all of it. The interval is "
        "over sentences; there is one pretrained model.",
    )


def measure_portion(evidence: Evidence, *, n_vars: int) -> Readings:
    """Whether a head is labelled with one of the paper's patterns, one row a head."""
    _, patterns = _patterns(Lego(n_vars=n_vars), seed=evidence.seed)
    rows = [
        {"head": f"{layer}.{head}", "label": label, OF_PATTERNS: label in PATTERNS}
        for layer, labels in enumerate(patterns.label)
        for head, label in enumerate(labels)
    ]
    counts = Counter(row["label"] for row in rows)
    return Readings(
        frame=pd.DataFrame(rows),
        title="Label of every head",
        numbers={f"heads labelled {name}": counts[name] for name in counts},
        note=f"Exact interval over heads. {patterns.comparison_text()}. Markers of a sentence, [BOS] and [EOS], are in "
        "the place of [CLS] and [SEP].",
    )


def random_words(tokenizer, n: int, *, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    """Sequences of random words, each of them twice, all in a random order, between the markers of a sentence."""
    vocabulary = tokenizer.get_vocab()
    words = torch.tensor(sorted(index for word, index in vocabulary.items() if word.isalpha() and len(word) > 2))
    drawn = torch.stack([words[torch.randperm(len(words), generator=generator)[:N_WORDS]] for _ in range(n)])
    order = torch.stack([torch.randperm(2 * N_WORDS, generator=generator) for _ in range(n)])
    twice = drawn.repeat(1, 2).gather(1, order)
    markers = [torch.full((n, 1), index) for index in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    return torch.cat([markers[0], twice, markers[1]], 1)


@torch.no_grad()
def twin_scores(model: TransformerStack, tokens: Int[Tensor, "batch pos"]) -> Float[np.ndarray, "batch layer head"]:
    """Attention from each word to its other occurrence, 0 at uniform attention and 1 for all of it, of every head."""
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"))
    patterns = torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.cfg.n_layers)], 1)
    is_word = torch.ones_like(tokens, dtype=torch.bool)
    is_word[:, [0, -1]] = False
    same = (tokens[:, :, None] == tokens[:, None]) & is_word[:, :, None]
    same &= ~torch.eye(tokens.shape[1], dtype=torch.bool)
    mass = (patterns * same[:, None, None]).sum(-1).sum(-1) / is_word.sum(1)[:, None, None]
    chance = 1 / tokens.shape[1]
    return ((mass - chance) / (1 - chance)).numpy()


def measure_same_heads(evidence: Evidence) -> Readings:
    """Correlation over heads of the association score on chains with that on random words, in one row."""
    _, patterns = _patterns(Lego(n_vars=LENGTHS[0]), seed=evidence.seed)
    on_chains = patterns.score.value[:, :, _association(patterns)]
    model = cast(TransformerStack, load(WEIGHTS.name))
    tokens = random_words(model.tokenizer, N_SENTENCES, generator=derived_generator(evidence.seed, "random words"))
    on_words = twin_scores(model, tokens)
    means = on_words.mean(0)
    correlation = float(np.corrcoef(on_chains.ravel(), means.ravel())[0, 1])
    # heads are the units: resampled together with both scores
    generator = np.random.default_rng(evidence.seed)
    draws = generator.integers(on_chains.size, size=(2000, on_chains.size))
    resampled = [np.corrcoef(on_chains.ravel()[draw], means.ravel()[draw])[0, 1] for draw in draws]
    low, high = np.percentile(resampled, (2.5, 97.5))
    strongest = _strongest(on_chains)
    intervals = {_names([head]): bootstrap_interval(on_words[:, *head], seed=evidence.seed) for head in strongest}
    untrained = twin_scores(make_model(model.cfg, seed=0), tokens).mean(0)
    return Readings(
        frame=pd.DataFrame([{CORRELATION: correlation, "low": low, "high": high, "heads": on_chains.size}]),
        numbers={
            "strongest heads on chains": _names(strongest),
            "strongest heads on random words": _names(_strongest(means)),
            "their scores on random words": {name: interval.text(2) for name, interval in intervals.items()},
            "highest score of an untrained model on random words": float(untrained.max()),
        },
        note=f"{N_WORDS} random words, each twice, in a random order; {N_SENTENCES} sequences. Bootstrap over heads, "
        "which are not independent.",
    )


def _association_claim(name: str, method: str, **options) -> Claim:
    return Claim(
        id=f"real.{name}",
        method=f"{method}, minus the highest of any head of {N_UNTRAINED} untrained models of the same shape, interval "
        f"over {N_SENTENCES} sentences; a head of this kind scores at least {MIN_SCORE}",
        rule=Above(MIN_SCORE),
        preregistration=FIRST_LOOK,
        quantity=EXCESS,
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        measure=partial(measure_association, **options),
        judged=Row(EXCESS, unit="sentences, one model", units="sentences"),
        packs=WEIGHTS,
    )


CLAIMS = (
    *(
        _association_claim(f"association.{n_vars}", "Association score of the head with the highest one", n_vars=n_vars)
        for n_vars in LENGTHS
    ),
    _association_claim(
        "symbols",
        "Association score, with other tokens, of the head with the highest one",
        n_vars=LENGTHS[0],
        symbols=SYMBOLS,
    ),
    Claim(
        id="real.portion",
        method="Share of the heads that are labelled association, manipulation or broadcast on chains of "
        f"{LENGTHS[1]}, exact interval over heads; a considerable portion is at least {CONSIDERABLE:g}",
        rule=AtLeast(CONSIDERABLE),
        preregistration=FIRST_LOOK,
        quantity="share of heads",
        value_range=SHARE,
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        measure=partial(measure_portion, n_vars=LENGTHS[1]),
        judged=Share(OF_PATTERNS, unit="heads of one model"),
        packs=WEIGHTS,
    ),
    Claim(
        id="real.same-heads",
        method="Correlation, over all heads, of the association score on chains of "
        f"{LENGTHS[0]} with the attention from a random word to its other occurrence, bootstrap over heads",
        rule=Above(0.5),
        preregistration=FIRST_LOOK,
        quantity=CORRELATION,
        value_range=(-1.0, 1.0),
        sizes=LARGE_SIZES,
        sizes_reason=NO_TIME,
        measure=measure_same_heads,
        judged=Row(CORRELATION, unit="heads of one model", units="heads"),
        packs=WEIGHTS,
    ),
)
