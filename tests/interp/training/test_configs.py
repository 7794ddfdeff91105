import re
from dataclasses import replace

import pytest
from texts import corpus

import interp
from hooks import presets
from interp.tasks import S3, Dyck, Lego, Template, Text
from interp.training.pretrained import pretrained_config
from interp.training.token_rows import markers_of

CHAINS, STRINGS = Lego(n_vars=3), Template(train=6, validation=5, test=5)
MASKED = Text(corpus=corpus(), objective="masked", n_ctx=24, vocab_size=300)
LEARNED = {"hardcode": 0, "hybrid": 3}
"""Learned heads of seven; then one each of association, [CLS] and [SEP], the rest convolutions."""


def test_a_config_fits_its_task():
    task = Lego(n_vars=3, group=S3)
    for family in ("lego", "bert", "albert", "template"):
        cfg = interp.config_for(task, family, n_layers=2)
        assert (cfg.d_vocab, cfg.d_vocab_out, cfg.n_ctx, cfg.attention) == (task.d_vocab, 6, 17, "bidirectional")
        assert cfg.n_layers == 2
    assert interp.config_for(task, n_ctx=40).n_ctx == 40


def test_configs_for_templates():
    symbolic = Template(templates="copy", train=6)
    assert interp.config_for(STRINGS).to_dict() == presets.template(d_vocab=17, d_vocab_out=1, n_ctx=4).to_dict()
    tied = interp.config_for(symbolic)
    assert (tied.tied_embedding, tied.d_vocab, tied.d_vocab_out, tied.n_ctx) == (True, 206, 206, 1)
    assert not interp.config_for(symbolic, "lego").tied_embedding
    assert not interp.config_for(symbolic, tied_embedding=False).tied_embedding
    following = Template(templates="symbolic_programs", form="next_token", train=6)
    assert interp.config_for(following).attention == "causal"
    copying = interp.config_for(symbolic, "template_copy", d_model=16)
    assert (copying.block, copying.d_mlp, copying.embedding_std) == ("bare", 0, 0.25)
    flat = interp.config_for(STRINGS, "fully_connected", width=5, inputs="one_hot_and_equality")
    assert (flat.d_vocab, flat.d_vocab_out, flat.n_ctx, flat.width) == (17, 1, 4, 5)
    for family in ("rnn", "lstm"):
        cfg = interp.config_for(STRINGS, family, width=5)
        assert (cfg.cell, cfg.d_vocab, cfg.d_vocab_out, cfg.n_ctx, cfg.width) == (family, 17, 1, 4, 5)
    with pytest.raises(ValueError, match=r"family is 'mlp'; choose one of .*fully_connected, rnn, lstm"):
        interp.config_for(STRINGS, "mlp")
    with pytest.raises(ValueError, match="tied_embedding reads out with the embedding of 17 learned tokens"):
        interp.config_for(STRINGS, "template_copy")
    with pytest.raises(ValueError, match="family is 'dyck_gpt', which is for Dyck; the task is 'template'"):
        interp.config_for(STRINGS, "dyck_gpt")


@pytest.mark.parametrize("family", ["bert_encoder", "albert_encoder", "hardcode", "hybrid"])
def test_the_answers_of_the_task_decide_the_head(family):
    assert interp.config_for(CHAINS, family).head == "linear"
    assert interp.config_for(MASKED, family).head == "masked_lm"
    assert interp.config_for(CHAINS, family, head="linear").d_vocab_out == CHAINS.d_vocab_out


def test_configs_have_the_tasks_markers():
    for family, n_learned in LEARNED.items():
        cfg = interp.config_for(CHAINS, family, d_model=28, n_heads=7, n_layers=2, d_mlp=56)
        ids = CHAINS.vocab.ids
        assert (cfg.pathways.cls_token, cfg.pathways.sep_token) == (ids["[BOS]"], ids["[EOS]"]) == (1, 2)
        assert (cfg.d_vocab, cfg.d_vocab_out, cfg.n_ctx) == (CHAINS.d_vocab, 2, CHAINS.n_ctx)
        heads = cfg.pathways.heads(cfg.d_head, cfg.d_model)
        assert heads == {"learned": n_learned, "association": 1, "cls": 1, "sep": 1, "convolution": 4 - n_learned}
    ids = MASKED.vocab.ids
    assert markers_of(MASKED) == {"cls_token": ids["[CLS]"], "sep_token": ids["[SEP]"]}
    cfg = interp.config_for(replace(MASKED, next_sentence=True), "hybrid", d_model=28, n_heads=7)
    assert (cfg.n_token_types, cfg.head, cfg.pathways.cls_token) == (2, "masked_lm", ids["[CLS]"])


def test_tasks_without_markers_are_refused():
    words = (
        r"the task has no cls_token and no sep_token, from which hardcode and hybrid broadcast: its "
        r"sequences .* Use a task with these markers \(Lego's sentence_format 'paper', Text's objective 'masked'\)"
    )
    compact = Lego(n_vars=3, sentence_format="compact")
    for family in LEARNED:
        with pytest.raises(ValueError, match=words):
            interp.config_for(compact, family)
    with pytest.raises(ValueError, match="the task has no cls_token and no sep_token"):
        pretrained_config(compact, interp.config_for(CHAINS, "hybrid", d_model=28, n_heads=7))
    with pytest.raises(ValueError, match="pathways look at later tokens too, but attention is 'causal'"):
        interp.config_for(replace(MASKED, objective="next_token"), "hybrid", d_model=28, n_heads=7)


@pytest.mark.parametrize(
    ("family", "sizes", "words"),
    [
        (None, {"n_layer": 3}, "n_layer is no field of TransformerConfig. Did you mean n_layers?"),
        ("dyck_minimal", {"d_modle": 3}, "d_modle is no field of TransformerConfig. Did you mean d_model?"),
        ("rnn", {"heads": 2}, "heads is no field of RecurrentConfig. Its fields are d_vocab, "),
    ],
)
def test_an_unknown_field_is_named_in_our_words(family, sizes, words):
    task = Dyck(length=8) if family == "dyck_minimal" else Lego(n_vars=2)
    with pytest.raises(ValueError, match=re.escape(words)):
        interp.config_for(task, family, **sizes)
