import json
from pathlib import Path

import pytest

from greenadapt.errors import InputError
from greenadapt.tokenization.files import SpecialIds, read_settings, special_ids, special_names
from tests.conftest import bytelevel_tokenizer, wordpiece_tokenizer


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
