"""Special tokens, and tokenizers of folders without ``tokenizer.json``."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from greenadapt.checkpoints.source import find_model
from greenadapt.errors import InputError, MissingError
from greenadapt.tokenization.export import copy_tokenizers
from greenadapt.tokenization.files import (
    SpecialIds,
    read_settings,
    special_ids,
    special_names,
    tokenizer_hash,
    tokenizer_settings,
)
from greenadapt.tokenization.vocabulary import load_tokenizer
from tests.conftest import bytelevel_tokenizer, wordpiece_tokenizer
from tests.support.languages import LINES
from tests.support.sentencepiece_models import real_lines


def test_usual_names_are_found_without_settings():
    assert special_ids(wordpiece_tokenizer(), {}) == SpecialIds(cls=2, sep=3, pad=0, unk=1, mask=4)
    assert special_ids(bytelevel_tokenizer(), {}) == SpecialIds(cls=0, sep=2, pad=1, unk=3, mask=4)


def test_settings_come_first_as_text_or_as_a_token():
    settings = {"pad_token": "the", "mask_token": {"content": "heart", "lstrip": True}}
    names = special_names(wordpiece_tokenizer(), settings)
    assert (names["pad_token"], names["mask_token"], names["cls_token"]) == ("the", "heart", "[CLS]")


def test_a_missing_token_is_named():
    tokenizer = bytelevel_tokenizer()
    tokenizer = type(tokenizer).from_str(tokenizer.to_str().replace("<mask>", "<hidden>"))
    with pytest.raises(InputError, match=r"has no mask_token \(looked for \[MASK\], <mask>\): name it in"):
        special_names(tokenizer, {})


def test_settings_are_read_from_both_files(tmp_path: Path):
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "a", "sep_token": "b"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "c"}))
    assert read_settings(tmp_path) == {"pad_token": "c", "sep_token": "b"}
    (tmp_path / "tokenizer_config.json").write_text("[1")
    with pytest.raises(InputError, match=r"tokenizer_config.json is not JSON"):
        read_settings(tmp_path)


Json = dict[str, Any]
ODD = [
    "naïve café ½ ① ﬁne  two  spaces\tTAB\nnew line", "emoji 😀👍🏽 e\u0301 \u200b zero", "ＦＵＬＬ width", "",
    "<mask> a <mask>b [MASK] <s> [SEP] </s>", "``quoted'' 12,345 don't I'm", "  lead", "trail  ", "İstanbul Straße",
    "foo<ent>bar, <ENT>, entity1 Entity1 entity12", "\ufffd\x00\x07\u2028", "a" * 150,
]  # fmt: skip
RESTS: dict[str, Json] = {
    "xlmr": {},
    "albert": dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"]),
}


def wordpiece(folder: Path) -> None:
    """The vocabulary of a published model."""
    shutil.copyfile(find_model("minilm").folder / "vocab.txt", folder / "vocab.txt")


def mpnet(folder: Path) -> None:
    wordpiece(folder)
    entries = (folder / "vocab.txt").read_text("utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", "<unk>", *entries, "<mask>"]) + "\n", "utf-8")


def bytelevel(folder: Path) -> None:
    bytelevel_tokenizer().model.save(str(folder))


def sentencepiece(kind: str, name: str, **options: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        spm = pytest.importorskip("sentencepiece", reason="NOT TESTED: models of SentencePiece, without sentencepiece")
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter([*real_lines(), *LINES]), model_prefix=str(folder / "trained"), vocab_size=900,
            minloglevel=2, num_threads=1, hard_vocab_limit=False, **RESTS[kind], **options,
        )  # fmt: skip
        (folder / "trained.model").rename(folder / name)
        (folder / "trained.vocab").unlink()

    return write


FAMILIES: dict[str, Callable[[Path], None]] = {
    "bert": wordpiece,
    "mpnet": mpnet,
    "roberta": bytelevel,
    "xlm-roberta": sentencepiece("xlmr", "sentencepiece.bpe.model"),
    "albert": sentencepiece("albert", "spiece.model"),
}


def token(text: str, **flags: Any) -> Json:
    return {"content": text, "lstrip": False, "rstrip": False, "single_word": False, "normalized": True, **flags}


def write_settings(folder: Path, names: Json, size: int) -> None:
    """Settings as of transformers 3."""
    mask = names.get("mask_token", "<mask>")
    flags = {"strip_accents": False, "tokenize_chinese_chars": False, "add_prefix_space": True}
    marked = {"__type": "AddedToken", **token(mask, lstrip=True)}
    write(
        folder, "tokenizer_config.json", {**flags, "model_max_length": 512, "mask_token": marked, "name_or_path": "x"}
    )
    extra = {"additional_special_tokens": ["<ent>", "[E2]"]}
    write(folder, "special_tokens_map.json", {**names, "mask_token": token(mask, lstrip=True), **extra})
    write(folder, "added_tokens.json", {"entity1": size + 1, "<ent>": size})


def write(folder: Path, name: str, content: Json) -> None:
    (folder / name).write_text(json.dumps(content), "utf-8")


def vocabulary_folder(folder: Path, model_type: str) -> Path:
    folder.mkdir()
    FAMILIES[model_type](folder)
    write(folder, "config.json", {"model_type": model_type})
    return folder


@pytest.mark.parametrize("model_type", FAMILIES)
def test_pieces_are_those_of_transformers(tmp_path: Path, model_type: str) -> None:
    folder = vocabulary_folder(tmp_path / "model", model_type)
    plain = transformers.AutoTokenizer.from_pretrained(folder)
    write_settings(folder, dict(plain.special_tokens_map), len(plain))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    assert theirs(LINES + ODD)["input_ids"] == [encoding.ids for encoding in ours.encode_batch(LINES + ODD)]


def test_a_configuration_without_a_type_is_that_of_bert(tmp_path: Path) -> None:
    folder = vocabulary_folder(tmp_path / "model", "bert")
    stated = ("model_type", "architectures")
    config = transformers.BertConfig().to_dict()
    write(folder, "config.json", {name: value for name, value in config.items() if name not in stated})
    write(folder, "tokenizer_config.json", {"do_lower_case": False})
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    assert theirs(ODD)["input_ids"] == [encoding.ids for encoding in load_tokenizer(folder).encode_batch(ODD)]
    assert load_tokenizer(folder).normalizer.normalize_str("A") == "A"


def test_every_file_counts_in_the_hash(tmp_path: Path) -> None:
    folder = vocabulary_folder(tmp_path / "model", "bert")
    seen = {tokenizer_hash(folder)}
    write(folder, "tokenizer_config.json", {"do_lower_case": False})
    seen.add(tokenizer_hash(folder))
    (folder / "vocab.txt").write_text((folder / "vocab.txt").read_text("utf-8") + "new\n", "utf-8")
    seen.add(tokenizer_hash(folder))
    (folder / "notes.txt").write_text("x")
    assert len({*seen, tokenizer_hash(folder)}) == 3


REFUSED = [
    ("config.json", {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer cannot"),
    ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizerFast"}, r"no vocab\.json and merges\.txt to create"),
    ("config.json", {"model_type": "llama"}, "has no tokenizer.json: load it with transformers' AutoTokenizer and"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_what_it_cannot_make_is_told(tmp_path: Path, name: str, content: Json, message: str) -> None:
    folder = vocabulary_folder(tmp_path / "model", "bert")
    write(folder, name, content)
    with pytest.raises(InputError, match=message):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("model_type", "file", "content", "message"),
    [
        ("bert", "vocab.txt", b"\xff\xfe\x00", r"cannot create .*UTF-8"),
        ("bert", "vocab.txt", b"", r"has no '\[UNK\]', the unk_token"),
        ("roberta", "merges.txt", b"Q Zzz\n", "transformers cannot create the tokenizer of "),
        ("albert", "spiece.model", b"\x00" * 99, "transformers cannot create the tokenizer of "),
    ],
)
def test_damaged_vocabularies_are_told(
    tmp_path: Path, model_type: str, file: str, content: bytes, message: str
) -> None:
    folder = vocabulary_folder(tmp_path / "model", model_type)
    (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_tokenizer(folder)


def test_transformers_and_sentencepiece_have_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "config.json", {"model_type": "xlm-roberta"})
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"")
    for extra, module in (("sentencepiece", "sentencepiece"), ("train", "transformers")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingError, match=rf"needs {module}, not installed: pip install .greenadapt\[{extra}\]"):
            load_tokenizer(tmp_path)


def test_other_models_of_sentencepiece_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    sentencepiece("albert", "spiece.model", model_type="bpe")(folder)
    write(folder, "config.json", {"model_type": "albert"})
    with pytest.raises(InputError, match=r"spiece\.model is no Unigram model"):
        load_tokenizer(folder)


@pytest.mark.parametrize("model_type", ["mpnet", "roberta"])
def test_tokens_that_no_file_names_are_those_of_the_class(tmp_path: Path, model_type: str) -> None:
    folder = vocabulary_folder(tmp_path / "model", model_type)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ids = special_ids(load_tokenizer(folder), tokenizer_settings(folder))
    assert (ids.cls, ids.sep, ids.pad, ids.unk, ids.mask) == (
        theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id,
    )  # fmt: skip
    (tmp_path / "copy").mkdir()
    copy_tokenizers(folder, tmp_path / "copy")
    again = special_ids(load_tokenizer(folder), read_settings(tmp_path / "copy"))
    assert again == ids
