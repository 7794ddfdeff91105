"""The text task: windows come from the corpus, targets are its tokens, and splits share no document."""

import json
import math
import pickle
import random
import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from test_text_tokenizer import word_piece
from texts import corpus, documents

import interp
from hooks import make_model
from interp.tasks import Corpus, Text, task_from
from interp.tasks.base import Task
from interp.tasks.text import streams as text_streams
from interp.tasks.text.tokenizer import TOKEN_KINDS
from interp.training.settings import recipe_for

CORPUS = corpus()
NEXT = Text(corpus=CORPUS, n_ctx=24, vocab_size=320)
MASKED = replace(NEXT, objective="masked")
PAIRS = replace(MASKED, next_sentence=True)
TASKS = {"next token": NEXT, "masked": MASKED, "next sentence": PAIRS}
SPLITS = ("train", "validation", "test")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Nothing is kept in the user's own cache."""
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


def joined(split):
    """The text of a split as tokens, cut anew, document by document."""
    tokens = NEXT._tokenized.tokenizer
    end = tokens.vocab.encode("<|endoftext|>")
    return [token for text in CORPUS.texts(split) for token in [*tokens.encode_documents([text])[0], *end]]


def stands_in(window, stream):
    """Whether these tokens follow one another somewhere."""
    return f" {' '.join(map(str, window))} " in f" {' '.join(map(str, stream))} "


@pytest.mark.parametrize("split", SPLITS)
def test_windows_are_of_their_split(task, split, generator):
    stream = joined(split)
    batch = task.sample(20, generator=generator, split=split)
    assert batch.tokens.shape == (20, 24)
    assert batch.attention_mask is None
    for row in batch.unmasked_tokens.tolist():
        if task is NEXT:
            assert stands_in(row, stream)
            continue
        assert row[0] == task.vocab.ids["[CLS]"]
        assert row[-1] == task.vocab.ids["[SEP]"]
        windows = [row[1:-1]] if task is MASKED else [row[1:12], row[13:-1]]
        assert all(stands_in(window, stream) for window in windows)


def test_splits_share_no_document():
    text = {split: NEXT.vocab.decode(joined(split)) for split in SPLITS}
    for split in SPLITS:
        pieces = text[split].split("<|endoftext|>")
        assert pieces == [*CORPUS.texts(split), ""]
    assert sum(len(joined(split)) for split in SPLITS) == sum(len(NEXT._tokenized.split[split]) for split in SPLITS)


def test_every_place_is_a_beginning(generator):
    stream = NEXT._tokenized.split["test"]
    places = len(stream) - 24 + 1
    batch = NEXT.sample(20 * places, generator=generator, split="test")
    windows = {tuple(row) for row in batch.tokens.tolist()}
    assert windows == {tuple(row) for row in stream.tokens.unfold(0, 24, 1).tolist()}


def test_the_next_token_is_the_next_token(generator):
    batch = NEXT.sample(9, generator=generator)
    assert torch.equal(batch.labels, batch.tokens[:, 1:])
    assert batch.target_positions.tolist() == [list(range(23))] * 9
    assert NEXT.targets[0] == "token 1"
    assert len(NEXT.targets) == 23
    assert NEXT.attention == "causal"
    assert NEXT.outcomes == ("token",)
    assert torch.equal(batch.tokens, batch.unmasked_tokens)


@examples(max_examples=25, deadline=None)
@given(st.integers(5, 40), st.booleans(), st.integers(0, 2**31))
def test_masked_targets_are_what_was_written(n_ctx, next_sentence, seed):
    task = replace(MASKED, n_ctx=n_ctx, next_sentence=next_sentence)
    batch = task.sample(8, generator=torch.Generator().manual_seed(seed))
    frame = 3 if next_sentence else 2
    count = max(1, round(0.15 * (n_ctx - frame)))
    assert task.n_masked == count
    assert len(task.targets) == batch.labels.shape[1] == count + next_sentence == len(batch.supervised)
    positions = batch.target_positions[:, :count]
    assert torch.equal(batch.unmasked_tokens.gather(1, positions), batch.labels[:, :count])
    assert bool((positions.diff(dim=1) > 0).all())
    elsewhere = torch.ones_like(batch.tokens, dtype=torch.bool).scatter(1, positions, False)
    assert torch.equal(batch.tokens[elsewhere], batch.unmasked_tokens[elsewhere])
    frame_at = [0, n_ctx - 1] + ([1 + (n_ctx - 3) - (n_ctx - 3) // 2] if next_sentence else [])
    assert not torch.isin(positions, torch.tensor(frame_at)).any()
    marks = [task.vocab.ids[name] for name in ("[CLS]", "[SEP]")]
    assert bool(torch.isin(batch.unmasked_tokens[:, frame_at], torch.tensor(marks)).all())


def test_four_fifths_are_hidden_a_tenth_is_swapped_a_tenth_stays(generator):
    batch = MASKED.sample(8000, generator=generator)
    shown = batch.tokens.gather(1, batch.target_positions)
    n = shown.numel()
    hidden, stays = shown == MASKED.vocab.ids["[MASK]"], shown == batch.labels
    ordinary = len(MASKED.vocab.ordinary)
    assert set(shown[~hidden & ~stays].tolist()) <= set(MASKED.vocab.ordinary.tolist())
    assert len(set(shown[~hidden & ~stays].tolist())) > 0.95 * ordinary
    for share, expected_share in ((hidden, 0.8), (stays, 0.1 + 0.1 / ordinary)):
        assert abs(share.double().mean() - expected_share) < 5 * (expected_share * (1 - expected_share) / n) ** 0.5
    per_place = torch.bincount(batch.target_positions.flatten(), minlength=24)[1:-1].double() / 8000
    expected_share = MASKED.n_masked / 22
    assert ((per_place - expected_share).abs() < 5 * (expected_share * (1 - expected_share) / 8000) ** 0.5).all()


def test_the_next_sentence_follows_half_of_the_time_and_else_is_of_another_document(generator):
    n = 4000
    batch = PAIRS.sample(n, generator=generator, split="validation")
    names = [PAIRS.vocab.names[int(label)] for label in batch.labels[:, -1]]
    assert set(names) == {"[NEXT]", "[RANDOM]"}
    assert abs(names.count("[NEXT]") / n - 0.5) < 5 * (0.25 / n) ** 0.5
    documents = [NEXT._tokenized.tokenizer.encode_documents([text])[0] for text in CORPUS.texts("validation")]
    for row, name in list(zip(batch.unmasked_tokens.tolist(), names, strict=True))[:300]:
        first, second = row[1:12], row[13:-1]
        of = [
            {index for index, text in enumerate(documents) if stands_in(sentence, text)} for sentence in (first, second)
        ]
        if name == "[NEXT]":
            assert any(stands_in([*first, *second], text) for text in documents)
        else:
            assert any(first_document != second_document for first_document in of[0] for second_document in of[1])
    assert batch.token_type_ids[0].tolist() == [0] * 13 + [1] * 11
    assert bool((batch.target_positions[:, -1] == 0).all())
    assert set(batch.model_inputs()) == {"token_type_ids"}
    assert batch.select(slice(1, 3)).model_inputs()["token_type_ids"].shape == (2, 24)
    assert MASKED.sample(2, generator=generator).model_inputs() == {}


def test_sentences_of_documents_of_all_lengths_come_up_evenly():
    """Every place where a pair can begin is as likely, and so is every place of another document for the second."""
    from interp.tasks.text.sampling import sample_pairs
    from interp.tasks.text.streams import TokenStream

    lengths = [3, 9, 4, 1, 6, 2]
    tokens = torch.cat([torch.tensor([*range(100 * i, 100 * i + size), -1]) for i, size in enumerate(lengths)])
    first = torch.tensor([0, *torch.tensor(lengths).add(1).cumsum(0)[:-1].tolist()])
    (first_window, second_window), follows = sample_pairs(
        TokenStream(tokens.int(), first), 40_000, 5, torch.Generator().manual_seed(0)
    )
    assert first_window.shape[1] == 3
    assert second_window.shape[1] == 2
    starts, counts = first_window[:, 0].unique(return_counts=True)
    assert starts.tolist() == [100, 101, 102, 103, 104, 400, 401]
    assert ((counts / 40_000 - 1 / 7).abs() < 5 * (6 / 49 / 40_000) ** 0.5).all()
    assert torch.equal(second_window[follows], first_window[follows][:, -1:] + torch.tensor([1, 2]))
    in_other_document = first_window[:, 0] // 100 != second_window[:, 0] // 100
    assert torch.equal(in_other_document, ~follows)
    assert torch.equal(second_window[:, 1], second_window[:, 0] + 1)
    seconds, counts = second_window[~follows & (first_window[:, 0] < 200)][:, 0].unique(return_counts=True)
    assert seconds.tolist() == [0, 1, 200, 201, 202, 400, 401, 402, 403, 404, 500]
    share = counts / counts.sum()
    assert ((share - 1 / 11).abs() < 5 * (10 / 121 / counts.sum()) ** 0.5).all()


def test_the_generator_decides(task):
    first, again, third = (task.sample(20, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    for name in ("tokens", "labels", "unmasked_tokens", "target_positions"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.tokens, third.tokens)


def test_a_task_is_a_task_and_survives_a_manifest(task):
    assert isinstance(task, Task)
    again = task_from(json.loads(json.dumps(task.describe())))
    assert again == task
    assert hash(again) == hash(task)
    assert again.describe() == task.describe()
    assert again.vocab.names == task.vocab.names
    assert pickle.loads(pickle.dumps(task)) == task
    assert task.d_vocab == task.d_vocab_out == len(task.vocab) == 320
    assert task.chance == 1 / 320


def test_another_setting_is_another_task(task):
    variants = [
        replace(task, n_ctx=25),
        replace(task, vocab_size=330),
        replace(task, corpus=corpus(seed=1)),
        *TASKS.values(),
    ]
    assert sum(variant == task for variant in variants) == 1


def random_target_logits(batch, d_vocab, seed=0):
    return torch.randn(*batch.labels.shape, d_vocab, generator=torch.Generator().manual_seed(seed))


def test_score_and_loss_are_cross_entropy_by_outcome(task, generator):
    batch = task.sample(6, generator=generator)
    target_logits = random_target_logits(batch, task.d_vocab)
    logits = torch.full((6, 24, task.d_vocab), 99.0)
    rows = torch.arange(6)[:, None].expand_as(batch.labels)
    logits[rows, batch.target_positions] = target_logits
    nats = -target_logits.log_softmax(-1)[rows, torch.arange(batch.labels.shape[1]), batch.labels]
    score = task.score(target_logits, batch)
    groups = [range(task.n_masked), [task.n_masked]] if task is PAIRS else [range(len(task.targets))]
    for outcome, group in enumerate(groups):
        group = list(group)
        assert torch.allclose(score.loss[:, outcome], nats[:, group].sum(1), atol=1e-4)
        assert score.total[:, outcome].tolist() == [len(group)] * 6
        right = (target_logits.argmax(-1) == batch.labels)[:, group].sum(1)
        assert score.right[:, outcome].tolist() == right.tolist()
    assert score.loss.shape == (6, len(task.outcomes))
    mean = sum(nats[:, list(group)].mean() for group in groups)
    assert torch.allclose(task.loss(logits, batch), mean, atol=1e-4)
    sure = 50 * F.one_hot(batch.labels, task.d_vocab).float()
    assert torch.equal(task.answers(sure), batch.labels)
    assert torch.equal(task.score(sure, batch).right, task.score(sure, batch).total)


def test_what_there_is_to_read(task, generator):
    batch = task.sample(40, generator=generator)
    labels, types = task.probe_labels(batch), task.control_types(batch)
    assert list(labels) == ["kind", "previous_kind"]
    for row in range(40):
        for target, (position, label) in enumerate(zip(batch.target_positions[row], batch.labels[row], strict=True)):
            before = int(position) if task is NEXT else max(0, int(position) - 1)
            assert int(labels["kind"][row, target]) == int(task.vocab.kinds[label])
            assert int(labels["previous_kind"][row, target]) == int(
                task.vocab.kinds[batch.unmasked_tokens[row, before]]
            )
            assert int(types[row, target]) == int(batch.tokens[row, before])
    if task is PAIRS:
        assert (labels["kind"][:, -1] == TOKEN_KINDS.index("special")).all()
    assert labels["kind"][:, 0].unique().numel() > 2


def test_relations(task, generator):
    batch = task.sample(10, generator=generator)
    padded = replace(batch, attention_mask=(torch.arange(24) < 20).expand(10, -1))
    for case in (batch, padded):
        relations = task.relations(case)
        real = torch.ones(10, 24, dtype=torch.bool) if case.attention_mask is None else case.attention_mask
        special = task.vocab.special[case.tokens]
        for row in range(10):
            for key in range(24):
                assert bool(relations["special"][row, :, key].all()) == bool(special[row, key] & real[row, key])
                assert bool(relations["special"][row, :, key].any()) == bool(special[row, key] & real[row, key])
            for query, key in [(random.Random(i).randrange(24), i % 24) for i in range(200)]:
                same = case.tokens[row, query] == case.tokens[row, key] and query != key
                expected = bool(same and real[row, key] and not special[row, key])
                assert bool(relations["same_token"][row, query, key]) == expected
        assert relations["same_token"].any()


def test_a_corpus_is_tokenized_once_and_then_read_from_disk(monkeypatch, tmp_path):
    text_streams.tokenize.cache_clear()
    documents = corpus(seed=3)
    task = Text(corpus=documents, n_ctx=8, vocab_size=300)
    batch = task.sample(5, generator=torch.Generator().manual_seed(0))
    files = sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())
    tokens_file, tokenizer_file = sorted(files, key=len, reverse=True)
    assert re.fullmatch(r"\w{24}\.safetensors", tokens_file)
    assert tokenizer_file == f"{task._tokenized.tokenizer.fingerprint}.json"
    assert Text(corpus=documents, n_ctx=9, vocab_size=300)._tokenized is task._tokenized
    text_streams.tokenize.cache_clear()
    tokenized = task._tokenized
    with monkeypatch.context() as patched:
        patched.setattr(text_streams, "train_tokenizer", None)
        text_streams.tokenize.cache_clear()
        again = task.sample(5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.tokens, batch.tokens)
    assert task._tokenized is not tokenized
    assert task._tokenized.tokenizer == tokenized.tokenizer


def test_another_corpus_and_another_tokenizer_are_cached_separately():
    tasks = [Text(corpus=corpus(seed=6), n_ctx=8, vocab_size=300)]
    tasks += [replace(tasks[0], corpus=corpus(seed=7)), replace(tasks[0], vocab_size=301)]
    tasks += [Text(corpus=corpus(seed=6), n_ctx=8, tokenizer=word_piece())]
    text_streams.tokenize.cache_clear()
    cut = [task._tokenized for task in tasks]
    text_streams.tokenize.cache_clear()
    reloaded = [task._tokenized for task in tasks]
    rows = [tokenized.split["train"].tokens.tolist() for tokenized in reloaded]
    assert rows == [tokenized.split["train"].tokens.tolist() for tokenized in cut]
    assert all(rows[index] != rows[earlier_index] for index in range(4) for earlier_index in range(index))


@pytest.mark.parametrize("name", ["*.safetensors", "*.json"])
@pytest.mark.parametrize("damage", [b"", b"\x00" * 40, None])
def test_a_damaged_cache_is_made_anew(name, damage, tmp_path):
    text_streams.tokenize.cache_clear()
    task = Text(corpus=corpus(seed=4), n_ctx=8, vocab_size=300)
    before = task.sample(5, generator=torch.Generator().manual_seed(0))
    (path,) = (tmp_path / "cache").rglob(name)
    content = path.read_bytes()
    path.unlink() if damage is None else path.write_bytes(damage)
    text_streams.tokenize.cache_clear()
    assert torch.equal(task.sample(5, generator=torch.Generator().manual_seed(0)).tokens, before.tokens)
    assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "file"))
    text_streams.tokenize.cache_clear()
    assert Text(corpus=corpus(seed=5), n_ctx=8, vocab_size=300).d_vocab == 300


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert text_streams.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("UNMYOPIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert text_streams.cache_folder() == tmp_path / "xdg" / "unmyopic"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert text_streams.cache_folder() == tmp_path / ".cache" / "unmyopic"


def test_a_tokenizer_at_hand_is_used_and_found_again(monkeypatch, tmp_path):
    task = Text(corpus=CORPUS, objective="masked", n_ctx=12, tokenizer=word_piece())
    assert task.vocab_size is None
    batch = task.sample(6, generator=torch.Generator().manual_seed(0))
    assert task.vocab.words(batch.unmasked_tokens[0])[0] == "<s>"
    assert task.vocab.words(batch.unmasked_tokens[0])[-1] == "</s>"
    described = json.loads(json.dumps(task.describe()))
    assert task_from(described) == task
    assert Text(corpus=CORPUS, n_ctx=12, tokenizer=word_piece()).d_vocab == 19
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(ValueError, match=r"the task's tokenizer \(fingerprint \w{16}\) is not in .*elsewhere"):
        task_from(described)


def test_the_default_is_python(monkeypatch):
    monkeypatch.setattr(Corpus, "python", lambda: CORPUS)
    assert Text() == Text(corpus=CORPUS, n_ctx=128, vocab_size=2048, objective="next_token", next_sentence=False)


def test_errors_when_a_task_is_made(as_a_user):
    def refused(match, **settings):
        with pytest.raises(ValueError, match=match):
            Text(**{"corpus": CORPUS, "vocab_size": 300, **settings})

    refused("corpus is 'english'; give 'python', or a Corpus", corpus="english")
    refused(r"corpus is \{.*; it must be a Corpus or a string", corpus=documents(3))
    refused("objective is 'translate'; choose one of next_token, masked", objective="translate")
    refused("next_sentence needs objective 'masked'; the objective is 'next_token'", next_sentence=True)
    refused("n_ctx is 1; this objective needs at least 2", n_ctx=1)
    refused("n_ctx is 3; this objective needs at least 4", n_ctx=3, objective="masked")
    refused("n_ctx is 4; this objective needs at least 5", n_ctx=4, objective="masked", next_sentence=True)
    refused("vocab_size is 299; give at least 300", vocab_size=299)
    refused("vocab_size is 300, but the tokenizer has its own size", tokenizer=word_piece())
    refused("tokenizer is a str; give", tokenizer="gpt2", vocab_size=None)
    needs = r"no \[NEXT\] token, which objective 'masked' with next_sentence needs"
    refused(needs, tokenizer=word_piece(), vocab_size=None, objective="masked", next_sentence=True)


def test_a_tokenizer_without_a_mask():
    from tokenizers import Tokenizer, models

    bare = Tokenizer(models.WordLevel({"x": 0, "<|endoftext|>": 1}, unk_token="x"))
    assert Text(corpus=CORPUS, n_ctx=8, tokenizer=bare).d_vocab == 2
    with pytest.raises(ValueError, match=r"no \[CLS\] token, which objective 'masked' needs"):
        Text(corpus=CORPUS, n_ctx=8, tokenizer=bare, objective="masked")
    bare.add_special_tokens(["[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match=r"no \[MASK\] token.*Add one of \[MASK\], <mask> .*with mask_token"):
        Text(corpus=CORPUS, n_ctx=8, tokenizer=bare, objective="masked")
    with pytest.raises(ValueError, match=r"no <\|endoftext\|> token"):
        Text(corpus=CORPUS, n_ctx=8, tokenizer=Tokenizer(models.WordLevel({"x": 0}, unk_token="x")))


def test_errors_when_text_is_drawn(task, generator, as_a_user):
    with pytest.raises(ValueError, match="split is 'all'; choose one of train, validation, test"):
        task.sample(2, generator=generator, split="all")
    few = replace(task, corpus=corpus(n=3, length=1), n_ctx=200)
    have = len(few._tokenized.split["test"])
    needs = {"next_token": 200, "masked": 197 if task.next_sentence else 198}[task.objective]
    with pytest.raises(ValueError, match=f"split 'test' of the text has {have} tokens; a window takes {needs}"):
        few.sample(2, generator=generator, split="test")


def test_windows_may_be_shorter_or_longer_than_the_tasks(task):
    for n_ctx in (5, 30):
        generator, second_generator = (torch.Generator().manual_seed(3) for _ in range(2))
        batch = task.sample(7, generator=generator, split="validation", n_ctx=n_ctx)
        meant = replace(task, n_ctx=n_ctx).sample(7, generator=second_generator, split="validation")
        assert batch.tokens.shape == (7, n_ctx)
        for name in ("tokens", "unmasked_tokens", "labels", "target_positions", "supervised"):
            assert torch.equal(getattr(batch, name), getattr(meant, name)), name
        assert float(task.loss(torch.zeros(7, n_ctx, 320), batch)) > 5
    generator, second_generator = (torch.Generator().manual_seed(3) for _ in range(2))
    same = task.sample(7, generator=generator, n_ctx=24)
    assert torch.equal(same.tokens, task.sample(7, generator=second_generator).tokens)
    least = {"next_token": 2, "masked": 5 if task.next_sentence else 4}[task.objective]
    with pytest.raises(ValueError, match=f"n_ctx is {least - 1}; this objective needs at least {least} tokens"):
        task.sample(7, generator=generator, n_ctx=least - 1)


def test_a_next_sentence_needs_two_documents(generator):
    few = replace(PAIRS, corpus=corpus(n=20))
    with pytest.raises(
        ValueError, match="'validation' of the text has 1 documents of 21 tokens or more; next_sentence"
    ):
        few.sample(2, generator=generator, split="validation")
    few.sample(2, generator=generator, split="train")


def test_configs_and_settings_that_fit(task):
    cfg = interp.config_for(task)
    assert (cfg.d_model, cfg.n_heads, cfg.n_layers, cfg.n_ctx, cfg.d_vocab) == (128, 4, 4, 24, 320)
    assert cfg.attention == task.attention
    assert interp.config_for(task, n_layers=2, d_model=32).n_layers == 2
    if task is NEXT:
        assert cfg.tied_embedding
        assert cfg.block == "pre_ln"
        assert interp.config_for(task, "gpt").n_layers == 12
    else:
        assert cfg.block == "post_ln"
    settings = recipe_for(task)
    assert settings.tokens_per_step == 2048
    assert settings.steps == 400
    assert settings.learning_rate_at(200) == 1e-3
    if task is PAIRS:
        assert cfg.n_token_types == 2
        with pytest.raises(ValueError, match="family is 'bert', which has no token types to distinguish two sentences"):
            interp.config_for(task, "bert")
        with pytest.raises(
            ValueError, match="the task needs 2 token types to distinguish its sentences; this model has fewer"
        ):
            interp.train(make_model(interp.config_for(MASKED, n_layers=1, d_model=16)), task)


def test_a_loss_at_chance_is_that_of_all_tokens_alike(task, generator):
    batch = task.sample(4, generator=generator)
    logits = torch.zeros(4, 24, task.d_vocab)
    uniform_loss = math.log(320) * (2 if task is PAIRS else 1)
    assert float(task.loss(logits, batch)) == pytest.approx(uniform_loss, rel=1e-5)
