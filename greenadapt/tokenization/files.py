"""Read special tokens and tokenizers from a model's files, with or without ``tokenizer.json``."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from greenadapt.architectures import ARCHITECTURES, stated_type
from greenadapt.errors import InputError, MissingError, first_line
from greenadapt.storage.files import Json, described_in, hash_file, hash_json, parse_own, read_as, read_object
from greenadapt.tokenization.words import SPACE

SETTINGS_FILE, MAP_FILE = "tokenizer_config.json", "special_tokens_map.json"
_AGAIN = "download the model again"
FILES_OF_SETTINGS = (SETTINGS_FILE, MAP_FILE)
_USUAL_NAMES = {  # BERT's, then RoBERTa's
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "mask_token": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class SpecialIds:
    """The ids of BERT's special tokens."""

    cls: int
    sep: int
    pad: int
    unk: int
    mask: int


def read_settings(folder: Path) -> dict[str, Any]:
    """Read ``tokenizer_config.json`` and ``special_tokens_map.json``, if present; the former takes precedence.

    Raises ``InputError`` if a file is not a JSON object.
    """
    return {**read_existing(folder / MAP_FILE), **read_existing(folder / SETTINGS_FILE)}


def read_existing(file: Path) -> Json:
    """The JSON object in a file of a model; empty if there is no such file."""
    return read_object(file, "model folder", _AGAIN) if file.is_file() else {}


def special_names(tokenizer: Tokenizer, settings: dict[str, Any]) -> dict[str, str]:
    """``cls_token`` and so on → the token's text, from ``settings``, else the name in BERT or RoBERTa.

    Raises ``InputError`` if the tokenizer lacks one.
    """
    names: dict[str, str] = {}
    for role, usual in _USUAL_NAMES.items():
        setting = settings.get(role)
        setting = setting.get("content") if isinstance(setting, dict) else setting
        candidates = (setting, *usual) if setting else usual
        name = next((name for name in candidates if tokenizer.token_to_id(name) is not None), None)
        if name is None:
            raise InputError(
                f"the tokenizer has no {role} (looked for {', '.join(candidates)})",
                f"name it in tokenizer_config.json as {role}",
            )
        names[role] = name
    return names


def special_ids(tokenizer: Tokenizer, settings: dict[str, Any]) -> SpecialIds:
    """The ids of ``special_names``; raises ``InputError`` if one is missing."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    names = special_names(tokenizer, settings)
    return SpecialIds(**{role.removesuffix("_token"): vocabulary[name] for role, name in names.items()})


TOKENIZER_FILE, ADDED_FILE = "tokenizer.json", "added_tokens.json"
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA, _OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
_BY_TRANSFORMERS = "load it with transformers' AutoTokenizer and save it there with save_pretrained"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_UNIGRAM = 1  # a model type of SentencePiece
_CONTROL, _USER_DEFINED = 3, 4  # types of pieces
Token = str | AddedToken


@dataclass(frozen=True)
class VocabularyFolder:
    """A model's folder with a vocabulary but no ``tokenizer.json``, and the settings of its tokenizer.

    ``find`` raises ``InputError`` if the files are not enough to create a tokenizer.
    """

    folder: Path
    tokenizer_class: str
    """Name of the class in transformers, without ``Fast``."""

    @classmethod
    def find(cls, folder: Path) -> "VocabularyFolder":
        """Find the tokenizer class, and check that the files of its vocabulary exist."""
        config = read_object(folder / "config.json", "model folder", "download the model again")
        settings = read_existing(folder / SETTINGS_FILE)
        architecture = ARCHITECTURES.get(stated_type(config, folder) or "")
        default = None if architecture is None else architecture.tokenizer_class
        name = settings.get("tokenizer_class") or config.get("tokenizer_class") or default
        if name is None:
            raise InputError(f"{folder} has no {TOKENIZER_FILE}", _BY_TRANSFORMERS)
        name = str(name).removesuffix("Fast")
        if name not in _KINDS:
            raise InputError(
                f"{folder} has no {TOKENIZER_FILE}, and a {name} cannot be created without one", _BY_TRANSFORMERS
            )
        vocabulary_folder = cls(folder, name)
        if missing := [file.name for file in vocabulary_folder.vocabulary if not file.is_file()]:
            raise InputError(
                f"{folder} has no {TOKENIZER_FILE}, and no {' and '.join(missing)} to create a {name} from",
                "download the model again, or " + _BY_TRANSFORMERS,
            )
        return vocabulary_folder

    @property
    def vocabulary(self) -> list[Path]:
        """The files of the vocabulary."""
        return [self.folder / name for name in _KINDS[self.tokenizer_class].files]

    @property
    def files(self) -> list[Path]:
        """All files that determine the tokenizer."""
        return [
            *self.vocabulary,
            *filter(Path.is_file, (self.folder / name for name in (ADDED_FILE, *FILES_OF_SETTINGS))),
        ]

    @property
    def may_be_cased(self) -> bool:
        """Whether texts are lower-cased by default although the vocabulary has entries with capitals."""
        if _KINDS[self.tokenizer_class].make is not _wordpiece or "do_lower_case" in self.settings:
            return False
        entries = self.vocabulary[0].read_text("utf-8", "replace").splitlines()
        return any(entry != entry.lower() for entry in entries if entry[:1] not in "[<")

    @cached_property
    def settings(self) -> Json:
        """The settings of ``tokenizer_config.json``; if it lists no added tokens, ``special_tokens_map.json`` takes
        precedence, as in transformers.
        """
        settings = read_existing(self.folder / SETTINGS_FILE)
        if _OLD_EXTRA in settings and not settings.get(_EXTRA):
            settings[_EXTRA] = settings.pop(_OLD_EXTRA)
        if "added_tokens_decoder" not in settings:
            for name, token in read_existing(self.folder / MAP_FILE).items():
                settings[name] = {**token, "special": True} if isinstance(token, dict) else token
        return settings

    @cached_property
    def listed(self) -> dict[str, AddedToken]:
        """Text → token, for the tokens that files list with ids, in the order of ids."""
        listed = self.settings.get("added_tokens_decoder")
        if listed is not None:
            rows = parse_own(json.dumps(listed), dict[int, Any], self.folder / SETTINGS_FILE, _AGAIN)
            with described_in(self.folder / SETTINGS_FILE):
                tokens = [_token(rows[row]) for row in sorted(rows)]
            return {str(token): token for token in tokens if isinstance(token, AddedToken)}
        file = self.folder / ADDED_FILE
        added = read_as(file, dict[str, int], _AGAIN) if file.is_file() else {}
        special = {str(_token(self.settings[role])) for role in _ROLES if self.settings.get(role)}
        special |= {str(_token(token)) for token in self.settings.get(_EXTRA) or []}
        return {
            text: AddedToken(text, normalized=text not in special, special=text in special)
            for text in sorted(added, key=added.__getitem__)
        }

    @cached_property
    def named_tokens(self) -> dict[str, Token]:
        """Role → token, from the files or else the default of the class; includes roles that only the files have."""
        tokens = {**_KINDS[self.tokenizer_class].tokens}
        for name, value in self.settings.items():
            is_extra_role = name.endswith("_token") and isinstance(value, str)
            if value is not None and (name in _ROLES or is_extra_role):
                token = _token(value)
                tokens[name] = self.listed.get(str(token), token)
        if self.tokenizer_class in _MASK_TAKES_SPACE and isinstance(tokens["mask_token"], str):
            tokens["mask_token"] = AddedToken(tokens["mask_token"], lstrip=True, special=True)
        return {role: tokens[role] for role in (*_ROLES, *tokens) if role in tokens}

    def name(self, role: str) -> str:
        """The text of the token with this role."""
        return str(self.named_tokens[role])

    @property
    def default_tokens(self) -> dict[str, str]:
        """Role → text of the default tokens of the class that no file sets."""
        return {role: self.name(role) for role in _ROLES if role in self.named_tokens and not self.settings.get(role)}

    def flag(self, name: str, default: bool) -> bool:
        """The value of a boolean setting."""
        value = self.settings.get(name)
        return default if value is None else bool(value)

    @cached_property
    def proto(self) -> Any:
        """The model of SentencePiece.

        Raises ``MissingError`` if a package that reads it is not installed, ``InputError`` for other kinds of model.
        """
        (file,) = self.vocabulary
        try:
            reader: Any = import_module("sentencepiece.sentencepiece_model_pb2")
        except Exception as error:  # protobuf raises its own errors if it is too old
            raise MissingError(
                f"{file} needs sentencepiece and protobuf, which cannot be imported ({first_line(error)})",
                "install greenadapt[sentencepiece], or " + _BY_TRANSFORMERS,
            ) from None
        proto = reader.ModelProto.FromString(file.read_bytes())
        if proto.trainer_spec.model_type != _UNIGRAM:
            raise InputError(
                f"{file} is no Unigram model, the only kind from which a tokenizer can be created", _BY_TRANSFORMERS
            )
        return proto

    @property
    def pieces(self) -> list[tuple[str, float]]:
        """The pieces of SentencePiece and their scores."""
        return [(piece.piece, piece.score) for piece in self.proto.pieces]

    @property
    def extra(self) -> list[Token]:
        """Special tokens without a role, from the settings or else from SentencePiece."""
        tokens = self.settings.get(_EXTRA)
        if tokens is None and self.vocabulary[0].suffix == ".model":
            pieces = [piece for piece in self.proto.pieces if piece.type in (_CONTROL, _USER_DEFINED)]
            return [AddedToken(piece.piece, normalized=False, special=piece.type == _CONTROL) for piece in pieces]
        return list(map(_token, tokens or self.settings.get(_OLD_EXTRA) or ()))


def tokenizer_files(folder: Path) -> list[Path]:
    """The ``tokenizer.json`` of a model's folder, or the files from which it would be created.

    Raises ``InputError`` if there are none.
    """
    file = folder / TOKENIZER_FILE
    return [file] if file.is_file() else VocabularyFolder.find(folder).files


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 of ``tokenizer_files``, hexadecimal."""
    if (folder / TOKENIZER_FILE).is_file():
        return hash_file(folder / TOKENIZER_FILE)
    source = VocabularyFolder.find(folder)
    return hash_json([source.tokenizer_class, {file.name: hash_file(file) for file in source.files}])


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """``read_settings``, and the default special tokens of the class if ``folder`` has only a vocabulary."""
    settings = read_settings(folder)
    if (folder / TOKENIZER_FILE).is_file() or not (folder / "config.json").is_file():
        return settings
    return {**settings, **VocabularyFolder.find(folder).default_tokens}


def make_tokenizer(source: VocabularyFolder) -> Tokenizer:
    """Create the tokenizer of a folder without ``tokenizer.json``, equivalent to transformers' class.

    Raises ``InputError`` for invalid files, ``MissingError`` if a package that reads them is missing, and errors of the
    tokenizers library.
    """
    kind = _KINDS[source.tokenizer_class]
    tokenizer: Tokenizer = kind.make(source)
    for role in ("unk_token", "cls_token", "sep_token") if "cls_token" in kind.tokens else ():
        if tokenizer.token_to_id(source.name(role)) is None:
            raise InputError(
                f"{source.vocabulary[0]} has no {source.name(role)}, the {role}", "download the model again"
            )
    named_tokens = {str(token) for token in source.named_tokens.values()}
    unlisted = (token for token in (*source.named_tokens.values(), *source.extra) if str(token) not in source.listed)
    tokens = []
    for candidate in (*source.listed.values(), *unlisted):  # a later token replaces one with the same text
        token = AddedToken(candidate, special=True) if isinstance(candidate, str) else candidate
        token.special |= str(token) in named_tokens
        tokens.append(token)
    tokenizer.add_tokens(tokens)
    tokenizer.post_processor = kind.frame(source, tokenizer)
    return tokenizer


def _token(value: Any) -> Token:
    """Parse a token in a file of settings."""
    if not isinstance(value, dict):
        return str(value)
    if not isinstance(value.get("content"), str):
        raise InputError(f"a special token is {json.dumps(value)}, need a content", _AGAIN)
    return AddedToken(value["content"], **{name: bool(value[name]) for name in _FLAGS if name in value})


def _wordpiece(source: VocabularyFolder) -> Tokenizer:
    model = models.WordPiece(models.WordPiece.read_file(str(source.vocabulary[0])), unk_token=source.name("unk_token"))
    tokenizer = Tokenizer(model)
    strips = source.settings.get("strip_accents")
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=source.flag("tokenize_chinese_chars", True),
        strip_accents=None if strips is None else bool(strips),
        lowercase=source.flag("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _bytelevel(source: VocabularyFolder) -> Tokenizer:
    vocabulary, merges = models.BPE.read_file(*map(str, source.vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=source.flag("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram(source: VocabularyFolder, pieces: list[tuple[str, float]], unk_id: int, steps: list[Any]) -> Tokenizer:
    """Create a Unigram tokenizer with the normalizers ``steps`` and the space marks of ALBERT and XLM-RoBERTa."""
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id))
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
    scheme = "always" if source.flag("add_prefix_space", True) else "never"
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, scheme)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(spaces)
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
    return tokenizer


def _charsmap(source: VocabularyFolder) -> list[Any]:
    charsmap = source.proto.normalizer_spec.precompiled_charsmap
    return [normalizers.Precompiled(charsmap)] if charsmap else []


def _xlm_roberta(source: VocabularyFolder) -> Tokenizer:
    control_pieces = [(source.name(role), 0.0) for role in ("bos_token", "pad_token", "eos_token", "unk_token")]
    pieces = [*control_pieces, *source.pieces[3:], (source.name("mask_token"), 0.0)]
    return _unigram(source, pieces, 3, _charsmap(source))


def _camembert(source: VocabularyFolder) -> Tokenizer:
    pad, unknown = ((source.name(role), 0.0) for role in ("pad_token", "unk_token"))
    control_pieces = [("<s>NOTUSED", 0.0), pad, ("</s>NOTUSED", 0.0), unknown, ("<unk>NOTUSED", -100.0)]
    pieces = [*control_pieces, *source.pieces[1:], (source.name("mask_token"), 0.0)]
    return _unigram(source, pieces, [piece for piece, _ in pieces].index(unknown[0]), _charsmap(source))


def _albert(source: VocabularyFolder) -> Tokenizer:
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not source.flag("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if source.flag("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    return _unigram(source, source.pieces, 1, [*steps, *_charsmap(source)])


def _deberta(source: VocabularyFolder) -> Tokenizer:
    pieces, unknown = source.pieces, (source.name("unk_token"), 0.0)
    default_id = int(source.settings.get("unk_id") or 1)
    tokenizer = Tokenizer(models.Unigram(pieces, pieces.index(unknown) if unknown in pieces else default_id))
    steps: list[Any] = [normalizers.Lowercase()] if source.flag("do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    scheme = "always" if source.flag("add_prefix_space", True) else "first"
    punctuation = [pre_tokenizers.Punctuation("isolated")] if source.flag("split_by_punct", False) else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*punctuation, pre_tokenizers.Metaspace(SPACE, scheme)])
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
    return tokenizer


def _ids(source: VocabularyFolder, tokenizer: Tokenizer, *roles: str) -> list[tuple[str, int]]:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return [(name, vocabulary[name]) for name in map(source.name, roles)]


def _frame_bert(source: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    (cls, _), (sep, _) = special = _ids(source, tokenizer, "cls_token", "sep_token")
    single = f"{cls}:0 $A:0 {sep}:0"
    return processors.TemplateProcessing(single=single, pair=f"{single} $B:1 {sep}:1", special_tokens=special)


def _frame_roberta(source: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    cls, sep = _ids(source, tokenizer, "cls_token", "sep_token")
    is_bytelevel = source.tokenizer_class == "RobertaTokenizer"
    trims = not is_bytelevel or source.flag("trim_offsets", True)
    return processors.RobertaProcessing(sep, cls, trims, is_bytelevel and source.flag("add_prefix_space", False))


def _frame_xlm_roberta(source: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    (bos, _), (eos, _) = special = _ids(source, tokenizer, "bos_token", "eos_token")
    return processors.TemplateProcessing(
        single=[bos, "$A", eos], pair=[bos, "$A", eos, eos, "$B", eos], special_tokens=special
    )


def _frame_gpt2(source: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    bos, eos = _ids(source, tokenizer, "bos_token", "eos_token")
    begins, ends = source.flag("add_bos_token", False), source.flag("add_eos_token", False)
    parts = [
        " ".join([*([f"{bos[0]}:{i}"] if begins else []), f"${text}:{i}", *([f"{eos[0]}:{i}"] if ends else [])])
        for i, text in enumerate("AB")
    ]
    special = [*([bos] if begins else []), *([eos] if ends else [])]
    return processors.TemplateProcessing(single=parts[0], pair=" ".join(parts), special_tokens=special)


@dataclass(frozen=True)
class _Kind:
    """A class of transformers: its files, its default special tokens, and how to create its tokenizer."""

    files: tuple[str, ...]
    tokens: Mapping[str, Token]
    make: Callable[[VocabularyFolder], Tokenizer]
    frame: Callable[[VocabularyFolder, Tokenizer], Any]


def _roles(names: str) -> dict[str, Token]:
    """Special tokens in the order of ``_ROLES``; ``-`` for none."""
    return {role: name for role, name in zip(_ROLES, names.split(), strict=True) if name != "-"}


_OF_BERT = _roles("- - [UNK] [SEP] [PAD] [CLS] [MASK]")
_OF_ROBERTA = _roles("<s> </s> <unk> </s> <pad> <s> <mask>")
_BERT = _Kind(("vocab.txt",), _OF_BERT, _wordpiece, _frame_bert)
_BYTELEVEL = ("vocab.json", "merges.txt")
_FAIRSEQ = ("sentencepiece.bpe.model",)
_KINDS = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), _BERT),
    "MPNetTokenizer": _Kind(("vocab.txt",), {**_OF_ROBERTA, "unk_token": "[UNK]"}, _wordpiece, _frame_roberta),
    "RobertaTokenizer": _Kind(_BYTELEVEL, _OF_ROBERTA, _bytelevel, _frame_roberta),
    "GPT2Tokenizer": _Kind(_BYTELEVEL, dict.fromkeys(_ROLES[:3], "<|endoftext|>"), _bytelevel, _frame_gpt2),
    "XLMRobertaTokenizer": _Kind(_FAIRSEQ, _OF_ROBERTA, _xlm_roberta, _frame_xlm_roberta),
    "CamembertTokenizer": _Kind(_FAIRSEQ, _OF_ROBERTA, _camembert, _frame_xlm_roberta),
    "AlbertTokenizer": _Kind(
        ("spiece.model",), _roles("[CLS] [SEP] <unk> [SEP] <pad> [CLS] [MASK]"), _albert, _frame_bert
    ),
    "DebertaV2Tokenizer": _Kind(
        ("spm.model",), _roles("[CLS] [SEP] [UNK] [SEP] [PAD] [CLS] [MASK]"), _deberta, _frame_bert
    ),
}
_MASK_TAKES_SPACE = ("MPNetTokenizer", "CamembertTokenizer")
