"""Both tokenizations of real lines, for each family of tokenizers, and what the exported tokenizer does otherwise.

    python benchmarks/round_trips.py unigram-xlm-r TEXT… --lines 100000

Trains a tokenizer on some of the lines, with SentencePiece's own trainer (the package sentencepiece) for its models,
adds the most frequent words that it cuts into pieces, and compares line by line:

- ``base``: lines whose base view is not the output of the model's own tokenizer;
- ``tiles``: lines where the views differ in their words or the characters of these;
- ``rule``: lines without unknown characters and single bytes where a word with a row, found by its characters, is not
  that one id, or another word not its base pieces;
- ``export``: lines where the exported ``tokenizer.json`` gives other ids than the expanded view; ``hidden``: those of
  them that hold a word which the export cannot find.
"""

import argparse
import gzip
import importlib
import json
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from greenadapt.checkpoints.source import find_model
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, NewEntries, new_entries, new_forms
from greenadapt.tokenization.dual_tokenizer import DualTokenizer, Pieces
from greenadapt.tokenization.export import export_tokenizers
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter, load_tokenizer

FAMILIES = ("wordpiece", "bytelevel", "unigram-xlm-r", "unigram-deberta", "unigram-albert", "sentencepiece-bpe",
            "qwen", "llama-2", "gemma")  # fmt: skip
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BLOCK = 1000
_BYTE = re.compile("<0x[0-9A-F]{2}>")
Json = dict[str, Any]


def read_lines(paths: list[str], n: int) -> list[str]:
    """The first lines of all files, equally many of each."""
    share = -(-n // len(paths))
    lines: list[str] = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
            lines += islice((line.rstrip("\n") for line in file if line.strip()), share)
    return lines[:n]


def make_tokenizer(family: str, lines: list[str], folder: Path, size: int) -> Tokenizer:
    """The tokenizer of a family, trained on ``lines``; that of minilm for WordPiece."""
    if family == "wordpiece":
        return load_tokenizer(find_model("minilm").folder)
    if family in ("bytelevel", "qwen"):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if family == "qwen":
            tokenizer.normalizer = normalizers.NFC()
            steps = pre_tokenizers.Split(Regex(_QWEN), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(lines, trainer)
    else:
        tokenizer = _of_sentencepiece(family, lines, folder, size)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def _of_sentencepiece(family: str, lines: list[str], folder: Path, size: int) -> Tokenizer:
    """SentencePiece's model behind the normalizer and pre-tokenizer that transformers gives the family."""
    sentencepiece: Any = importlib.import_module("sentencepiece")
    proto: Any = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    of_whole_texts = family in ("llama-2", "gemma")
    is_bpe = family == "sentencepiece-bpe" or of_whole_texts
    options = {"byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity"}
    options |= {"remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "trained"), vocab_size=size, minloglevel=1,
        model_type="bpe" if is_bpe else "unigram", character_coverage=0.9995, max_sentence_length=100_000,
        num_threads=1, **(options if of_whole_texts else {}),
    )  # fmt: skip
    proto.ParseFromString((folder / "trained.model").read_bytes())
    pieces = [*((name, 0.0) for name in SPECIALS), *((piece.piece, piece.score) for piece in proto.pieces[3:])]
    if is_bpe:
        ids = {piece: i for i, (piece, _) in enumerate(pieces)}
        merges, has_bytes = _merges(pieces, ids), of_whole_texts
        tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=has_bytes))
    else:
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    if of_whole_texts:
        marks = normalizers.Replace(" ", "▁")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), marks]) if family == "llama-2" else marks
        if family == "gemma":
            tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        return tokenizer
    charsmap = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    spaces = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(spaces))
    tokenizer.normalizer = charsmap
    if family in ("unigram-deberta", "sentencepiece-bpe"):
        one_space = normalizers.Replace(Regex(" {2,}"), " ")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), charsmap, one_space])
        tokenizer.pre_tokenizer = spaces[1]
    if family == "unigram-albert":
        lower = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
        tokenizer.normalizer = normalizers.Sequence([*lower, charsmap])
    return tokenizer


def _merges(pieces: list[tuple[str, float]], ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges as transformers makes them: pairs of pieces, by the score of the merged piece."""
    merges = [
        (-score, ids[piece[:i]], ids[piece[i:]], (piece[:i], piece[i:]))
        for piece, score in pieces[len(SPECIALS) :]
        for i in range(1, len(piece))
        if piece[:i] in ids and piece[i:] in ids
    ]
    return [pair for *_, pair in sorted(merges)]


@dataclass(frozen=True)
class Expanded:
    """A tokenizer with added words, as greenadapt reads it, and as it exports it."""

    base: Tokenizer
    dual: DualTokenizer
    exported: Tokenizer
    entries: NewEntries
    hidden: int
    """Entries that the export cannot find; the first ones."""
    unk_id: int | None

    @classmethod
    def make(cls, tokenizer: Tokenizer, lines: list[str], n_words: int, folder: Path) -> "Expanded":
        """With the ``n_words`` most frequent words of ``lines`` that can be added."""
        source, out = folder / "source", folder / "expanded"
        source.mkdir()
        tokenizer.save(str(source / "tokenizer.json"))
        (source / "tokenizer_config.json").write_text("{}")
        base = load_tokenizer(source)
        splitter, vocabulary = WordSplitter(base), BaseVocabulary(base)
        counts = Counter(chain.from_iterable(map(splitter.split, lines)))
        frequent = [word for word, count in counts.most_common() if count > 2]
        new = new_forms(frequent, vocabulary).any(axis=1).tolist()
        words = [word for word, is_new in zip(frequent, new, strict=True) if is_new][:n_words]
        entries = new_entries(words, vocabulary)
        out.mkdir()
        AddedWords.build(entries, vocabulary, vocabulary.size, "base").write(out / WORDS_FILE)
        report = export_tokenizers(vocabulary, source, out, entries, vocabulary.size, "base")
        return cls(base, DualTokenizer.load(out), load_tokenizer(out), entries, report.hidden_words, vocabulary.unk_id)

    def compare(self, lines: list[str]) -> Json:
        first = self.dual.added.first_id
        vocabulary = BaseVocabulary(self.base)
        texts = self.entries.strings(vocabulary)
        mark = "" if vocabulary.whole_texts else "▁"
        rows = {text.removeprefix(mark): first + i for i, text in enumerate(texts)}
        counts: Counter[str] = Counter(lines=len(lines), added_words=len(self.entries.words), hidden_words=self.hidden)
        for block in (lines[begin : begin + _BLOCK] for begin in range(0, len(lines), _BLOCK)):
            base_encodings = self.base.encode_batch(block, add_special_tokens=False)
            plain = self.exported.encode_batch(block, add_special_tokens=False)
            for encoding, base_encoding, exported in zip(
                self.dual.encode_batch(block), base_encodings, plain, strict=True
            ):
                ids, expanded_ids = base_encoding.ids, encoding.expanded.ids.tolist()
                counts["words"] += encoding.n_words
                counts["found"] += int((encoding.expanded.ids >= first).sum())
                counts["base"] += encoding.base.ids.tolist() != ids
                counts["tiles"] += extents(encoding.base) != extents(encoding.expanded)
                if self.unk_id not in ids and not any(map(_BYTE.fullmatch, base_encoding.tokens)):
                    counts["rule"] += by_rule(base_encoding.tokens, ids, encoding.base, rows, mark) != expanded_ids
                if exported.ids != expanded_ids:
                    counts["export"] += 1
                    is_hidden = (encoding.expanded.ids >= first) & (encoding.expanded.ids < first + self.hidden)
                    counts["hidden"] += bool(is_hidden.any())
        return {name: counts[name] for name in COLUMNS}


COLUMNS = (
    *("lines", "words", "added_words", "hidden_words", "found"),
    *("base", "tiles", "rule", "export", "hidden"),
)


def by_rule(tokens: list[str], ids: list[int], pieces: Pieces, rows: dict[str, int], mark: str) -> list[int]:
    """The expanded view by a plain rule: each word is looked up by its characters, without its ``mark``."""
    merged: list[int] = []
    starts = np.flatnonzero(np.diff(pieces.words, prepend=-1)).tolist()
    for begin, end in pairwise([*starts, len(ids)]):
        text = tokens[begin] if end - begin == 1 else "".join(token.removeprefix("##") for token in tokens[begin:end])
        row = rows.get(text.removeprefix(mark))
        merged += ids[begin:end] if row is None else [row]
    return merged


def extents(pieces: Pieces) -> list[list[int]]:
    """First and last character of each word."""
    starts = np.flatnonzero(np.diff(pieces.words, prepend=-1))
    ends = np.append(starts[1:], len(pieces.words))[: len(starts)] - 1
    return [pieces.spans[starts, 0].tolist(), pieces.spans[ends, 1].tolist()]


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("texts", nargs="+", help="text files, one line each, gzip or not")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--train-lines", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=16_000, help="pieces of a trained tokenizer")
    parser.add_argument("--words", type=int, default=20_000, help="words that are added")
    arguments = parser.parse_args()
    lines = read_lines(arguments.texts, arguments.lines)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        every = max(1, len(lines) // arguments.train_lines)
        tokenizer = make_tokenizer(arguments.family, lines[::every], Path(folder), arguments.size)
        counts = Expanded.make(tokenizer, lines, arguments.words, Path(folder)).compare(lines)
    print(json.dumps({"family": arguments.family, **counts, "seconds": round(time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
