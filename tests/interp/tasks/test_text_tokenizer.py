"""Tokenizers: the same text the same tokens, nothing lost, names that can be read, special tokens where needed."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import documents
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from interp.tasks.text.tokenizer import SPECIAL_TOKENS, TOKEN_KINDS, convert_tokenizer, token_kind, train_tokenizer

TEXTS = list(documents().values())
TOKENS = train_tokenizer(TEXTS, 320)
VOCAB = TOKENS.vocab


def test_special_tokens_come_first_then_every_byte():
    assert VOCAB.names[:7] == tuple(special.name for special in SPECIAL_TOKENS.values())
    assert VOCAB.special_ids == tuple(range(7))
    assert dict(TOKENS.roles) == {role: index for index, role in enumerate(SPECIAL_TOKENS)}
    assert len(VOCAB) == 320
    assert VOCAB.ordinary.tolist() == list(range(7, 320))
    singles = {text.encode("utf-8", "surrogateescape") for text in VOCAB.texts[7:]}
    assert {bytes([byte]) for byte in range(256)} <= singles


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_no_text_is_lost(text):
    assert VOCAB.decode(VOCAB.encode(text)) == text
    (ids,) = TOKENS.encode_documents([text])
    assert VOCAB.decode(ids) == text


def test_special_names_are_tokens_where_people_write_and_text_in_documents():
    text = "a [MASK] b<|endoftext|>"
    ids = VOCAB.encode(text)
    assert [VOCAB.names[token] for token in ids if token < 7] == ["[MASK]", "<|endoftext|>"]
    (ids,) = TOKENS.encode_documents([text])
    assert min(ids) >= 7
    assert VOCAB.decode(ids) == VOCAB.decode(VOCAB.encode(text)) == text


def test_training_is_the_same_every_time():
    assert train_tokenizer(iter(TEXTS), 320) == TOKENS
    assert train_tokenizer(iter(TEXTS), 319) != TOKENS


@pytest.mark.slow
def test_training_is_the_same_in_every_process():
    code = (
        "from texts import documents; from interp.tasks.text.tokenizer import train_tokenizer;"
        "print(train_tokenizer(documents().values(), 320).fingerprint)"
    )
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{root}:{root / 'tests/support'}", "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "2"}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert process.stdout.strip() == TOKENS.fingerprint


def test_only_so_many_characters_are_trained_on(monkeypatch):
    monkeypatch.setattr("interp.tasks.text.tokenizer.TRAINING_CHARACTERS", len(TEXTS[0]) + 5)
    assert train_tokenizer(TEXTS, 320) == train_tokenizer([TEXTS[0], TEXTS[1][:5]], 320)
    assert train_tokenizer(TEXTS, 320) != TOKENS


def test_names_can_be_read_and_told_apart():
    name_of = dict(zip(VOCAB.texts, VOCAB.names, strict=True))
    assert name_of[" return"] == "·return"
    assert name_of["\n"] == "⏎"
    assert name_of["\t"] == "⇥"
    assert VOCAB.names[VOCAB.texts.index("\udce2")] == "<0xE2>"
    assert len(set(VOCAB.names)) == len(VOCAB)
    assert all(name.isprintable() and " " not in name for name in VOCAB.names)
    row = VOCAB.encode("def beta")
    assert "".join(VOCAB.words(row)) == "def·beta"
    assert VOCAB.words(torch.tensor(row)) == VOCAB.words(row)


def test_a_mark_in_the_text_is_not_taken_for_a_space():
    vocab = train_tokenizer(["·⏎ "] * 9, 300).vocab
    assert "".join(vocab.words(vocab.encode("·⏎ "))) == "<U+00B7><U+23CE>·"


def test_an_id_outside_the_vocabulary():
    with pytest.raises(ValueError, match="unknown token id 320 at position 1; ids go to 319"):
        VOCAB.decode([3, 320])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" def", "keyword"),
        ("None", "keyword"),
        (" self", "name"),
        ("ing", "name"),
        ("_x1", "name"),
        ("é", "name"),
        ("42", "number"),
        ("0.5", "number"),
        ("1e9", "number"),
        (" +=", "operator"),
        ("):", "operator"),
        ("    ", "space"),
        ("\t", "space"),
        ("\n    ", "newline"),
        ("('", "other"),
        ('"""', "other"),
        ("a.b", "other"),
        ("\udce2", "other"),
        (" \udce2\udc80", "other"),
        ("", "space"),
    ],
)
def test_kinds(text, kind):
    assert token_kind(text) == kind


def test_every_token_has_a_kind():
    kinds = VOCAB.kinds
    assert len(TOKEN_KINDS) <= 8
    assert kinds.shape == (320,)
    assert (kinds == TOKEN_KINDS.index("special")).tolist() == VOCAB.special.tolist()
    assert [TOKEN_KINDS[int(kinds[token])] for token in VOCAB.encode("def")] == ["keyword"]
    assert set(kinds.tolist()) == set(range(8))


def test_too_small_a_vocabulary():
    with pytest.raises(ValueError, match="vocab_size is 299; give at least 300: 256 bytes, special tokens and words"):
        train_tokenizer(TEXTS, 299)


def word_piece():
    """A WordPiece tokenizer with unusual names of special tokens and a gap in its ids."""
    words = ["[UNK]", "<mask>", "<s>", "</s>", "def", "##ta", "be", "(", ")", "+"]
    engine = Tokenizer(models.WordPiece({word: 2 * index for index, word in enumerate(words)}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    engine.add_special_tokens(["[UNK]", "<mask>", "<s>", "</s>"])
    return engine


def test_a_tokenizer_at_hand_keeps_its_special_tokens():
    engine = word_piece()
    engine.enable_truncation(2)
    engine.enable_padding(length=9)
    tokenizer = convert_tokenizer(engine)
    assert dict(tokenizer.roles) == {"cls": 4, "sep": 6, "mask": 2, "end": 6}
    assert tokenizer.vocab.encode("def beta (") == [8, 12, 10, 14]  # neither cut short nor padded
    assert engine.truncation is not None
    assert tokenizer.vocab.words([8, 12, 10, 9]) == ["def", "be", "ta", "<unused 9>"]
    assert len(tokenizer.vocab) == 19
    assert convert_tokenizer(tokenizer) is tokenizer
    assert convert_tokenizer(engine) == tokenizer


def test_a_tokenizer_of_transformers_says_which_token_is_which():
    from transformers import PreTrainedTokenizerFast

    engine = word_piece()
    engine.add_special_tokens(["<hide>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=engine, mask_token="<hide>", eos_token="</s>")
    tokenizer = convert_tokenizer(fast)
    assert dict(tokenizer.roles)["mask"] == engine.token_to_id("<hide>")
    assert tokenizer != convert_tokenizer(word_piece())
    assert tokenizer.fingerprint != convert_tokenizer(word_piece()).fingerprint


def test_what_is_no_tokenizer():
    with pytest.raises(ValueError, match=r"tokenizer is a str; give a tokenizers\.Tokenizer or a fast tokenizer"):
        convert_tokenizer("gpt2")
    with pytest.raises(ValueError, match="the tokenizer has no tokens; train it first"):
        convert_tokenizer(Tokenizer(models.BPE()))


def test_a_token_that_is_missing():
    tokenizer = convert_tokenizer(word_piece())
    with pytest.raises(ValueError, match=r"has no \[NEXT\] token, which x needs\. Add one of \[NEXT\] to it"):
        tokenizer.token("next", "x")
    with pytest.raises(ValueError, match=r"no \[PAD\] token.*\[PAD\], <pad> .*or a tokenizer with pad_token"):
        tokenizer.token("pad", "x")


def test_byte_pieces_and_metaspace_are_shown_as_text():
    words = ["<unk>", "▁a", "b", "<0x0A>", "<0xE2>"]
    engine = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, [], byte_fallback=True))
    engine.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert convert_tokenizer(engine).vocab.names[1:] == ("·a", "b", "⏎", "<0xE2>")
    engine.decoder = decoders.Metaspace()
    assert convert_tokenizer(engine).vocab.names[1:] == ("·a", "b", "<0x0A>", "<0xE2>")
