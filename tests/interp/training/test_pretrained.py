"""A task starts from a pretrained model: same computation up to the read-out, the right row for each token."""

from dataclasses import replace

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import corpus
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import interp
from hooks import (
    Encoder,
    FullyConnectedConfig,
    HeadPattern,
    Transformer,
    TransformerConfig,
    from_huggingface,
    make_model,
    presets,
)
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.tasks import Dyck, Lego, Text, Vocab
from interp.training.pretrained import pretrained_config
from interp.training.run import TrainingRun
from interp.training.token_rows import TokenLookup, arbitrary_symbols, rows_of

CHAINS = Lego(n_vars=3)
SHORT = Lego(n_vars=2, sentence_format="compact")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[unused1]",
    "is",
    "not",
    "val",
    "##a",
    "plus",
    *LETTERS,
    *"=+-;1",
]
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24}
SETTINGS = interp.TrainSettings(steps=2, batch_size=8, warmup_steps=1, eval_every=1, n_eval=20)


def word_pieces(words=WORDS):
    """BERT's kind: lower case, parts of words with ##, something for the unknown."""
    engine = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer()
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "unk", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **special)


def byte_level():
    """GPT-2's kind: bytes, with the space before a word in its token, and one special token for all purposes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = {piece: index for index, piece in enumerate([*letters, "Ġa", "Ġ=", "<|endoftext|>"])}
    engine = Tokenizer(models.BPE(pieces, [("Ġ", "a"), ("Ġ", "=")]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, bos_token=end, eos_token=end, unk_token=end)


def unigrams():
    """ALBERT's kind: a word begins with a mark; `=` has none."""
    pieces = [
        "<unk>",
        "▁",
        "[CLS]",
        "[SEP]",
        "<pad>",
        *(f"▁{x}" for x in LETTERS),
        *LETTERS,
        *(f"▁{x}" for x in WORDS[6:9]),
        *["▁+", "▁-", "▁;", "▁1", "="],
    ]
    engine = Tokenizer(models.Unigram([(piece, -float(index)) for index, piece in enumerate(pieces)], 0, False))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=engine, cls_token="[CLS]", sep_token="[SEP]", pad_token="<pad>", unk_token="<unk>"
    )


def bert(**more):
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": 30, **SIZES, **more}
    return shaken(transformers.BertForMaskedLM(transformers.BertConfig(**sizes)))


def gpt2(tokenizer, **more):
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 30, "vocab_size": len(tokenizer), **more}
    return shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)))


def shaken(model):
    """Weights far from their start, so that each of them counts."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator) + (parameter.ndim == 1))
    return model.eval()


def ours(seed=0, **more):
    """A small model of ours whose tokens have the names of WORDS."""
    sizes = {"d_vocab": len(WORDS), "d_model": 16, "n_heads": 2, "n_layers": 2, "n_ctx": 30, **more}
    model = shaken(Transformer(TransformerConfig(**sizes), seed=seed))
    model.tokenizer = word_pieces()
    return model


@pytest.fixture
def folder(tmp_path):
    def write(model, tokenizer=None):
        model.save_pretrained(tmp_path / "theirs")
        if tokenizer is not None:
            tokenizer.save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs"

    return write


def last_hidden(model, tokens, **inputs):
    name = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    return model.run_with_cache(tokens, names_filter=name, **inputs)[1][name]


def same_hidden(model, source, rows, task, seed=0):
    """On sentences of the task, all that comes before the read-out is what the source makes of the rows' tokens."""
    batch = task.sample(16, generator=torch.Generator().manual_seed(seed))
    meant = last_hidden(source, torch.tensor(rows)[batch.tokens])
    torch.testing.assert_close(last_hidden(model, batch.tokens), meant, rtol=0, atol=1e-6)
    assert meant.std() > 0.1
    return True


def test_bert_from_a_folder(folder):
    path = folder(bert(), word_pieces())
    model = interp.pretrained(CHAINS, path, seed=3)
    rows = [WORDS.index({"[BOS]": "[CLS]", "[EOS]": "[SEP]"}.get(name, name)) for name in CHAINS.vocab.names]
    assert isinstance(model, Encoder)
    assert same_hidden(model, from_huggingface(path), rows, CHAINS)
    cfg = model.cfg
    assert (cfg.d_vocab, cfg.d_vocab_out, cfg.n_ctx) == (CHAINS.d_vocab, CHAINS.d_vocab_out, CHAINS.n_ctx)
    assert (cfg.head, cfg.pooler, cfg.tied_embedding, cfg.n_token_types) == ("linear", False, False, 2)
    assert cfg == pretrained_config(CHAINS, from_huggingface(path).cfg)
    assert not model.training
    assert model.tokenizer is CHAINS.vocab
    run = interp.train(model, CHAINS, SETTINGS)
    assert run.history[-1]["steps_done"] == 2


def test_gpt2_has_one_row_for_begin_and_end(folder):
    tokenizer = byte_level()
    path = folder(gpt2(tokenizer), tokenizer)
    model = interp.pretrained(CHAINS, str(path))
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    marks = {"[PAD]": end, "[BOS]": end, "[EOS]": end}
    rows = [marks.get(name) or tokenizer.convert_tokens_to_ids(name) for name in CHAINS.vocab.names]  # `a`, not `Ġa`
    assert model.cfg.attention == "causal"
    assert same_hidden(model, from_huggingface(path), rows, CHAINS)
    assert rows_of(CHAINS, tokenizer, symbols={"=": " ="}, d_vocab=300)[3] == tokenizer.convert_tokens_to_ids("Ġ=")


def test_albert_rows_are_words_or_pieces_of_the_same_name(folder):
    tokenizer = unigrams()
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 10, "max_position_embeddings": 30, **SIZES}
    path = folder(shaken(transformers.AlbertForMaskedLM(transformers.AlbertConfig(**sizes))), tokenizer)
    model = interp.pretrained(CHAINS, path)
    marks = {"[PAD]": "<pad>", "[BOS]": "[CLS]", "[EOS]": "[SEP]", "=": "="}
    rows = tokenizer.convert_tokens_to_ids([marks.get(name, f"▁{name}") for name in CHAINS.vocab.names])
    assert tokenizer.unk_token_id not in rows
    assert model.cfg.d_embedding == 10
    assert same_hidden(model, from_huggingface(path), rows, CHAINS)


def test_a_huggingface_model_in_memory(folder):
    theirs = bert()
    model = interp.pretrained(CHAINS, theirs, tokenizer=word_pieces())
    assert torch.equal(
        model.W_E[CHAINS.vocab.ids["a"]], theirs.bert.embeddings.word_embeddings.weight[WORDS.index("a")]
    )
    with pytest.raises(
        ValueError, match=r"the source has no tokenizer, so its token ids cannot be matched. Give tokenizer="
    ):
        interp.pretrained(CHAINS, theirs)
    with pytest.raises(ValueError, match="the source has no tokenizer"):
        interp.pretrained(CHAINS, folder(theirs))
    interp.pretrained(CHAINS, folder(theirs), tokenizer=word_pieces())


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    """A masked model of text, hardly trained, in its folder."""
    path = tmp_path_factory.mktemp("runs") / "text"
    task = Text(corpus=corpus(), objective="masked", n_ctx=24, vocab_size=300)
    model = make_model(interp.config_for(task, d_model=16, n_heads=2, n_layers=2))
    return path, task, interp.train(model, task, SETTINGS, folder=path).model


@pytest.mark.parametrize("kind", [transformers.BertModel, transformers.BertForTokenClassification])
def test_heads_and_poolers_are_dropped(kind):
    theirs = shaken(kind(transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=30, **SIZES)))
    model = interp.pretrained(CHAINS, theirs, tokenizer=word_pieces())
    assert (model.cfg.head, model.cfg.pooler, model.pooler, model.cfg.d_vocab_out) == ("linear", False, None, 2)
    rows = rows_of(CHAINS, word_pieces(), d_vocab=len(WORDS))
    assert same_hidden(model, from_huggingface(theirs), rows, CHAINS)


def test_a_text_model_from_its_run(text_run):
    path, task, source = text_run
    model = interp.pretrained(CHAINS, path)
    ids = task.vocab.ids
    marks = {"[BOS]": "[CLS]", "[EOS]": "[SEP]"}
    rows = [ids[marks.get(name, name)] for name in CHAINS.vocab.names]
    assert same_hidden(model, source, rows, CHAINS)
    again = interp.pretrained(CHAINS, source)  # its tokenizer is the task's vocab
    assert torch.equal(again.W_E, model.W_E)
    by_hand = interp.pretrained(CHAINS, path, tokenizer=task.vocab.engine)
    assert torch.equal(by_hand.W_E, model.W_E)


def test_a_run_on_symbols_as_source(tmp_path):
    long = Lego(n_vars=4)
    source = interp.train(make_model(interp.config_for(long, n_layers=1, d_model=16)), long, SETTINGS, folder=tmp_path)
    model = interp.pretrained(CHAINS, tmp_path)
    assert torch.equal(model.W_E, source.model.W_E)
    assert torch.equal(model.positions.weight, source.model.positions.weight[: CHAINS.n_ctx])
    brackets = interp.pretrained(Dyck(n_types=1, length=6), ours(), symbols={"(": "is", ")": "not"})
    assert torch.equal(brackets.W_E[1:3], ours().W_E[[WORDS.index("[CLS]"), WORDS.index("[SEP]")]])


def test_the_read_out_is_new_and_other_weights_are_copies():
    source = ours()
    before = {name: value.clone() for name, value in source.state_dict().items()}
    one, same, other = (interp.pretrained(CHAINS, source, seed=seed) for seed in (1, 1, 2))
    fresh = make_model(one.cfg, seed=1)
    assert torch.equal(one.unembed.weight, fresh.unembed.weight)
    assert torch.equal(one.unembed.weight, same.unembed.weight)
    assert not torch.equal(one.unembed.weight, other.unembed.weight)
    for (name, value), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(value, theirs) != (name == "unembed.weight"), name
    interp.train(one, CHAINS, SETTINGS)
    assert all(torch.equal(value, before[name]) for name, value in source.state_dict().items())
    assert interp.pretrained(CHAINS, ours().double()).W_E.dtype == torch.float64


@pytest.mark.parametrize(
    "wiring",
    [
        {"block": "post_ln", "positions": "sinusoidal"},
        {"attention": "causal", "tied_embedding": True},
        {"tied": True, "qk_identity": True, "vo_identity": True},
        {"positions": "linear", "block": "dyck"},
        {"positions": "none", "block": "bare", "d_mlp": 0},
        {"head_patterns": ((HeadPattern(kind="association"), HeadPattern()),)},
    ],
    ids=lambda wiring: next(iter(wiring)),
)
def test_activations_equal_those_of_the_source(wiring):
    source = ours(**wiring)
    model = interp.pretrained(CHAINS, source)
    rows = rows_of(CHAINS, source.tokenizer, d_vocab=len(WORDS))
    assert same_hidden(model, source, rows, CHAINS)
    theirs = dict(source.named_parameters())
    for name, value in model.named_parameters():
        if name.startswith(("weights.", "norm_final.")):
            assert torch.equal(value, theirs[name]), name
    kept = source.cfg.n_ctx if wiring.get("positions") == "linear" else CHAINS.n_ctx
    assert model.cfg == replace(source.cfg, d_vocab=CHAINS.d_vocab, d_vocab_out=2, n_ctx=kept, tied_embedding=False)


@settings(max_examples=10, deadline=None)
@given(chosen=st.permutations(["is", "not", "val", "plus", "##a", "[unused1]", "[MASK]"]), seed=st.integers(0, 99))
def test_symbols_change_only_their_rows(chosen, seed):
    source = ours()
    symbols = dict(zip(("=", "+", "-", ";", "1", "a", "[EOS]"), chosen, strict=True))
    model, plain = interp.pretrained(CHAINS, source, symbols=symbols), interp.pretrained(CHAINS, source)
    rows = rows_of(CHAINS, source.tokenizer, symbols=symbols, d_vocab=len(WORDS))
    for token, row in zip(CHAINS.vocab.names, rows, strict=True):
        assert row == WORDS.index(symbols.get(token, {"[BOS]": "[CLS]", "[EOS]": "[SEP]"}.get(token, token)))
    assert same_hidden(model, source, rows, CHAINS, seed)
    for (name, value), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(value, theirs) != (name == "embed.weight"), name


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 4))
def test_arbitrary_symbols_are_ordinary_and_unused(seed, n):
    tokens = ("=", "+", "-", ";")[:n]
    drawn = arbitrary_symbols(tokens, word_pieces(), seed=seed, task=CHAINS)
    assert drawn == arbitrary_symbols(tokens, word_pieces(), seed=seed, task=CHAINS)
    assert tuple(drawn) == tokens
    assert len(set(drawn.values())) == n
    assert set(drawn.values()) <= {"is", "not", "val", "plus"}  # not ##a, [unused1], [UNK], nor any of the task's
    rows_of(CHAINS, word_pieces(), symbols=drawn, d_vocab=len(WORDS))


def test_arbitrary_symbols_of_other_vocabularies(text_run):
    drawn = {tuple(arbitrary_symbols(("=", "+"), word_pieces(), seed=seed).values()) for seed in range(20)}
    assert len(drawn) > 10
    assert not {"=", "+"} & {symbol for pair in drawn for symbol in pair}
    known = Vocab(("[PAD]", "x", "y", "z"))
    assert set(arbitrary_symbols(("x",), known, seed=0).values()) < {"y", "z"}
    _, text, _ = text_run
    for tokenizer in (text.vocab, byte_level(), unigrams()):
        found = arbitrary_symbols(("=", "+", "-"), tokenizer, seed=1, task=CHAINS)
        assert all(symbol.isprintable() and symbol.strip() for symbol in found.values())
        rows_of(CHAINS, tokenizer, symbols=found, d_vocab=10_000)


def test_invalid_arguments_of_arbitrary_symbols_are_refused():
    with pytest.raises(ValueError, match="task_tokens has a token twice: '=', '='"):
        arbitrary_symbols(("=", "="), word_pieces(), seed=0)
    with pytest.raises(ValueError, match=r"task_tokens has '\?', not a token of the task; it has \[PAD\] \[BOS\]"):
        arbitrary_symbols(("?", "="), word_pieces(), seed=0, task=CHAINS)
    with pytest.raises(ValueError, match="task_tokens has 6 tokens, but the vocabulary only 4 ordinary tokens"):
        arbitrary_symbols(("a", "b", "c", "d", "e", "f"), word_pieces(), seed=0, task=CHAINS)


@pytest.mark.parametrize(
    ("match", "task", "words", "symbols"),
    [
        (r"no single token for '=', ';', '1' of the task. Give replacements, symbols=\{'=': ...\}, rename", CHAINS,
         [word for word in WORDS if word not in "=;1"], None),
        (r"no single token for 'abc', '\[x' of the task", Lego(n_vars=2, alphabet=("abc", "[x", "a")), WORDS, None),
        ("symbols has '%', '#', not a token of the task; it has", CHAINS, WORDS, {"%": "is", "#": "is"}),
        ("symbols replaces '=', ';' by 'isnt', 'a b', not a single token of the vocabulary", CHAINS, WORDS,
         {"=": "isnt", ";": "a b", "+": "plus"}),
        (r"symbols replaces '=' by '\[UNK\]'", CHAINS, WORDS, {"=": "[UNK]"}),
        (r"'\+', '-' of the task would all be the token 'is' \(id 6\) and indistinguishable", CHAINS,
         WORDS, {"+": "is", "-": "is"}),
        (r"'=', 'a' of the task would all be the token 'a'", CHAINS, WORDS, {"=": "a"}),
        (r"'\[EOS\]', ';' of the task would all be the token '\[SEP\]'", CHAINS, WORDS, {";": "[SEP]"}),
        (r"'a', 'A' of the task would all be the token 'a'", Lego(n_vars=2, alphabet="aA"), WORDS, None),
    ],
)  # fmt: skip
def test_tokens_that_are_refused(match, task, words, symbols):
    with pytest.raises(ValueError, match=match):
        rows_of(task, word_pieces(words), symbols=symbols, d_vocab=len(words))


def test_padding_may_have_any_row_and_the_end_markers_one_row():
    rows = rows_of(CHAINS, word_pieces(), symbols={"[PAD]": "a", "[BOS]": "is", "[EOS]": "is"}, d_vocab=len(WORDS))
    assert rows[:3] == [WORDS.index("a"), WORDS.index("is"), WORDS.index("is")]
    few = [word for word in WORDS if word not in ("[PAD]", "[CLS]", "[SEP]")]
    with pytest.raises(ValueError, match=r"no single token for '\[PAD\]', '\[BOS\]', '\[EOS\]' of the task"):
        rows_of(CHAINS, Tokenizer(models.WordLevel({word: i for i, word in enumerate(few)})), d_vocab=99)


def test_unknown_tokens_count_as_missing():
    words = {word: index for index, word in enumerate(WORDS) if word not in "=+"}
    for engine in (Tokenizer(models.WordLevel(words, unk_token="[UNK]")), Tokenizer(models.WordLevel(words))):
        known = TokenLookup(engine)
        assert (known.find("="), known.find(""), known.find("a a")) == (None, None, None)
        assert known.find("a") == words["a"]
    capitals = TokenLookup(word_pieces([*WORDS, "QQ"]))  # `QQ` is tokenized as `qq`, which is unknown
    assert capitals.find("QQ") == len(WORDS)
    assert capitals.find("qq") is None
    unigram = Tokenizer(models.Unigram([("?", 0.0), ("a", -1.0)], 0, False))
    assert [TokenLookup(unigram).find(text) for text in "z?a"] == [None, None, 1]


def test_sources_that_are_refused(tmp_path, as_a_user, text_run):
    nets = FullyConnectedConfig(d_vocab=5, n_ctx=30)
    frozen = presets.dyck_minimal(n_types=1, max_depth=2)
    broadcast = ours(head_patterns=((HeadPattern(kind="broadcast", token=2), HeadPattern()),))
    bare = ours()
    bare.tokenizer = None
    for source, match in [
        (make_model(nets), "the source is a fully connected network, which has no weights of a transformer; give"),
        (make_model(frozen), "frozen vectors of bracket and depth instead of an embedding; give one with a learned"),
        (ours(n_ctx=16), "the source has 16 positions; the task has sequences of 17. Give a source with more"),
        (broadcast, "a head hard-coded to broadcast from one token, whose id is another token in the task"),
        (bare, "the source has no tokenizer"),
        (7, "source is a int; give a model, the folder of a training run or of a Hugging Face model, or a hub name"),
    ]:
        with pytest.raises(ValueError, match=match):
            interp.pretrained(CHAINS, source)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        interp.pretrained(CHAINS, tmp_path / "nothing")
    (tmp_path / "manifest.json").write_text('{"task": {}}')
    with pytest.raises(
        ValueError, match=r"manifest\.json is not a manifest: .* lacks the fields 'versions', 'hardware'"
    ):
        interp.pretrained(CHAINS, tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer is a str; give a tokenizers\.Tokenizer or a fast tokenizer"):
        interp.pretrained(CHAINS, ours(), tokenizer="bert-base-uncased")
    with pytest.raises(ValueError, match=r"gives '1' the id 41, but the source has 38 tokens. Is it another model's"):
        interp.pretrained(SHORT, ours(d_vocab=38))
    path, text, _ = text_run
    with pytest.raises(ValueError, match="the task is text, whose tokens are those of a tokenizer"):
        interp.pretrained(text, path)


def test_specs_start_from_their_pretrained_model(tmp_path, text_run):
    path, _, source = text_run
    symbols = (("=", "("), ("+", ")"))
    config = pretrained_config(CHAINS, source.cfg)
    sizes = {"task": CHAINS, "config": config, "settings": SETTINGS, "seed": 4, "pretrained": str(path)}
    first, second = tmp_path / "a", tmp_path / "b"
    by_hand = interp.train(interp.pretrained(CHAINS, path, symbols=dict(symbols), seed=4), CHAINS, SETTINGS, seed=4)
    train_to_disk({first: ModelSpec(**sizes, symbols=symbols), second: ModelSpec(**sizes)}, n_jobs=1)
    run, other = TrainingRun.load(first), TrainingRun.load(second)
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), by_hand.model.parameters(), strict=True))
    assert run.manifest["initial_weights"] == by_hand.manifest["initial_weights"] != other.manifest["initial_weights"]
    with pytest.raises(ValueError, match=r"model a \(seed 4\): .*holds another run: initial_weights is of"):
        train_to_disk({first: ModelSpec(**sizes)}, n_jobs=1)


def test_specs_that_are_refused(tmp_path, text_run):
    path, _, source = text_run
    config = pretrained_config(CHAINS, source.cfg)
    sizes = {"task": CHAINS, "config": config, "settings": SETTINGS, "seed": 0}
    with pytest.raises(ValueError, match="symbols are tokens of a pretrained model; give pretrained, or omit"):
        ModelSpec(**sizes, symbols=(("=", "a"),))
    wrong = ModelSpec(**{**sizes, "config": replace(config, n_layers=1, activation="relu")}, pretrained=str(path))
    with pytest.raises(
        ValueError,
        match=r"model run \(seed 0\): config is not that of the pretrained model, .*text: n_layers is 1, not 2, "
        r"activation is 'relu', not 'gelu'. Use interp.training.pretrained.pretrained_config",
    ):
        train_to_disk({tmp_path / "run": wrong}, n_jobs=1)
    with pytest.raises(ValueError, match="the pretrained model cannot be loaded: there is no folder"):
        train_to_disk({tmp_path / "run": ModelSpec(**sizes, pretrained=str(tmp_path / "nothing"))}, n_jobs=1)
    assert not (tmp_path / "run").exists()
