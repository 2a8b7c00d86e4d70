"""Special tokens and tokenizers of a model's files, with or without ``tokenizer.json``, without transformers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from greenadapt.architectures import ARCHITECTURES, stated_type
from greenadapt.errors import InputError, MissingError, first_line
from greenadapt.storage.files import Json, described_in, hash_file, hash_json, read_object
from greenadapt.tokenization.words import SPACE

SETTINGS_FILE, MAP_FILE = "tokenizer_config.json", "special_tokens_map.json"
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
    """The ids that frame a model input."""

    cls: int
    sep: int
    pad: int
    unk: int
    mask: int


def read_settings(folder: Path) -> dict[str, Any]:
    """``tokenizer_config.json`` over ``special_tokens_map.json``, if ``folder`` has them.

    Raises ``InputError`` if a file is not a JSON object.
    """
    settings: dict[str, Any] = {}
    for name in reversed(FILES_OF_SETTINGS):
        file = folder / name
        if file.is_file():
            settings |= read_object(file, "model folder", "download the model again")
    return settings


def special_names(tokenizer: Tokenizer, settings: dict[str, Any]) -> dict[str, str]:
    """``cls_token`` and so on → the token's text: as in ``settings``, else BERT's or RoBERTa's usual name.

    Raises ``InputError`` if the tokenizer has none of these.
    """
    names: dict[str, str] = {}
    for role, usual in _USUAL_NAMES.items():
        given = settings.get(role)
        given = given.get("content") if isinstance(given, dict) else given
        candidates = (given, *usual) if given else usual
        name = next((name for name in candidates if tokenizer.token_to_id(name) is not None), None)
        if name is None:
            raise InputError(
                f"the tokenizer has no {role} (looked for {', '.join(candidates)})",
                f"name it in tokenizer_config.json as {role}",
            )
        names[role] = name
    return names


def end_names(tokenizer: Tokenizer, config: dict[str, Any]) -> dict[str, str]:
    """``bos_token`` and ``eos_token`` → the token's text, if the ``config`` of a generative language model has them."""
    ids = {role: config.get(f"{role}_id") for role in ("bos_token", "eos_token")}
    first = {role: found[0] if isinstance(found, list) and found else found for role, found in ids.items()}
    named = {role: tokenizer.id_to_token(found) for role, found in first.items() if isinstance(found, int)}
    return {role: name for role, name in named.items() if name is not None}


def special_ids(tokenizer: Tokenizer, settings: dict[str, Any]) -> SpecialIds:
    """The ids of ``special_names``; raises ``InputError`` where one is missing."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    names = special_names(tokenizer, settings)
    return SpecialIds(**{role.removesuffix("_token"): vocabulary[name] for role, name in names.items()})


TOKENIZER_FILE, ADDED_FILE = "tokenizer.json", "added_tokens.json"
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA, _OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
_BY_TRANSFORMERS = "load it with transformers' AutoTokenizer and save it there with save_pretrained"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_UNIGRAM = 1  # among the model types of SentencePiece
_CONTROL, _USER_DEFINED = 3, 4  # among its types of pieces
Token = str | AddedToken


@dataclass(frozen=True)
class VocabularyFolder:
    """A folder with a model's vocabulary, and what its files say of the tokenizer.

    ``find`` raises ``InputError`` if no tokenizer can be made of them.
    """

    folder: Path
    tokenizer_class: str
    """That of transformers, without ``Fast``."""

    @classmethod
    def find(cls, folder: Path) -> "VocabularyFolder":
        """Look which files are there, and which class of transformers reads them."""
        config = read_object(folder / "config.json", "model folder", "download the model again")
        model_type = stated_type(config, {path.name for path in folder.iterdir()})
        settings = _read(folder / SETTINGS_FILE)
        known = ARCHITECTURES.get(model_type or "")
        default = None if known is None else known.tokenizer_class
        name = settings.get("tokenizer_class") or config.get("tokenizer_class") or default
        if name is None:
            raise InputError(f"{folder} has no {TOKENIZER_FILE}", _BY_TRANSFORMERS)
        name = str(name).removesuffix("Fast")
        if name not in _KINDS:
            raise InputError(
                f"{folder} has no {TOKENIZER_FILE}, and a {name} is not made without one", _BY_TRANSFORMERS
            )
        found = cls(folder, name)
        if missing := [file.name for file in found.vocabulary if not file.is_file()]:
            raise InputError(
                f"{folder} has no {TOKENIZER_FILE}, and no {' and '.join(missing)}, of which a {name} could be made",
                "download the model again, or " + _BY_TRANSFORMERS,
            )
        return found

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
        """Whether its texts are lower-cased only because nothing says otherwise, and it has entries with capitals."""
        if _KINDS[self.tokenizer_class].make is not _wordpiece or "do_lower_case" in self.settings:
            return False
        entries = self.vocabulary[0].read_text("utf-8", "replace").splitlines()
        return any(entry != entry.lower() for entry in entries if entry[:1] not in "[<")

    @cached_property
    def settings(self) -> Json:
        """Those of ``tokenizer_config.json``, and if that lists no added tokens, those of ``special_tokens_map.json``
        above them, as transformers reads both.
        """
        settings = _read(self.folder / SETTINGS_FILE)
        if _OLD_EXTRA in settings and not settings.get(_EXTRA):
            settings[_EXTRA] = settings.pop(_OLD_EXTRA)
        if "added_tokens_decoder" not in settings:
            for name, token in _read(self.folder / MAP_FILE).items():
                settings[name] = {**token, "special": True} if isinstance(token, dict) else token
        return settings

    @cached_property
    def listed(self) -> dict[str, AddedToken]:
        """Text → token of those that files list with their ids, in the order of these."""
        listed = self.settings.get("added_tokens_decoder")
        if listed is not None:
            with described_in(self.folder / SETTINGS_FILE):
                ordered = sorted((int(row), _token(token)) for row, token in listed.items())
                return {str(token): token for _, token in ordered if isinstance(token, AddedToken)}
        added = _read(self.folder / ADDED_FILE)
        special = {str(_token(self.settings[role])) for role in _ROLES if self.settings.get(role)}
        special |= {str(_token(token)) for token in self.settings.get(_EXTRA) or []}
        with described_in(self.folder / ADDED_FILE):
            ordered_texts = sorted(added, key=added.__getitem__)
        return {
            text: AddedToken(text, normalized=text not in special, special=text in special) for text in ordered_texts
        }

    @cached_property
    def named(self) -> dict[str, Token]:
        """Role → token: as the files say, else transformers' own for the class; also of roles that only they know."""
        known = {**_KINDS[self.tokenizer_class].tokens}
        for name, given in self.settings.items():
            is_own = name.endswith("_token") and isinstance(given, str)
            if given is not None and (name in _ROLES or is_own):
                token = _token(given)
                known[name] = self.listed.get(str(token), token)
        if self.tokenizer_class in _MASK_TAKES_SPACE and isinstance(known["mask_token"], str):
            known["mask_token"] = AddedToken(known["mask_token"], lstrip=True, special=True)
        return {role: known[role] for role in (*_ROLES, *known) if role in known}

    def name(self, role: str) -> str:
        """The text of the token that has a role."""
        return str(self.named[role])

    @property
    def unsaid(self) -> dict[str, str]:
        """Role → text of the tokens that transformers' class has, and that no file names."""
        return {role: self.name(role) for role in _ROLES if role in self.named and not self.settings.get(role)}

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is on or off."""
        given = self.settings.get(name)
        return default if given is None else bool(given)

    @cached_property
    def proto(self) -> Any:
        """The model of SentencePiece.

        Raises ``MissingError`` without the packages that read it, ``InputError`` if it is no Unigram model.
        """
        (file,) = self.vocabulary
        try:
            reader: Any = import_module("sentencepiece.sentencepiece_model_pb2")
        except Exception as error:  # protobuf raises its own if it is older than what wrote the module
            raise MissingError(
                f"{file} needs sentencepiece and protobuf, which cannot be imported ({first_line(error)})",
                "install greenadapt[sentencepiece], or " + _BY_TRANSFORMERS,
            ) from None
        proto = reader.ModelProto.FromString(file.read_bytes())
        if proto.trainer_spec.model_type != _UNIGRAM:
            raise InputError(f"{file} is no Unigram model, of which alone a tokenizer is made", _BY_TRANSFORMERS)
        return proto

    @property
    def pieces(self) -> list[tuple[str, float]]:
        """The pieces of SentencePiece and their scores."""
        return [(piece.piece, piece.score) for piece in self.proto.pieces]

    @property
    def extra(self) -> list[Token]:
        """Special tokens without a role: those that the files name, else those of SentencePiece."""
        given = self.settings.get(_EXTRA)
        if given is None and self.vocabulary[0].suffix == ".model":
            pieces = [piece for piece in self.proto.pieces if piece.type in (_CONTROL, _USER_DEFINED)]
            return [AddedToken(one.piece, normalized=False, special=one.type == _CONTROL) for one in pieces]
        return list(map(_token, given or self.settings.get(_OLD_EXTRA) or ()))


def tokenizer_files(folder: Path) -> list[Path]:
    """``tokenizer.json`` of a model's folder, or the files that determine what it would be.

    Raises ``InputError`` if there are none.
    """
    file = folder / TOKENIZER_FILE
    return [file] if file.is_file() else VocabularyFolder.find(folder).files


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 of ``tokenizer_files``, hexadecimal."""
    if (folder / TOKENIZER_FILE).is_file():
        return hash_file(folder / TOKENIZER_FILE)
    found = VocabularyFolder.find(folder)
    return hash_json([found.tokenizer_class, {file.name: hash_file(file) for file in found.files}])


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """``read_settings``, where ``folder`` has only a vocabulary with the special tokens of its class, too."""
    settings = read_settings(folder)
    if (folder / TOKENIZER_FILE).is_file() or not (folder / "config.json").is_file():
        return settings
    return {**settings, **VocabularyFolder.find(folder).unsaid}


def make_tokenizer(found: VocabularyFolder) -> Tokenizer:
    """The tokenizer of a folder without ``tokenizer.json``: ids, spans and frame as transformers' class has them.

    Raises ``InputError`` for files that hold something else, ``MissingError`` if a package that reads them is missing;
    the library's own errors pass.
    """
    kind = _KINDS[found.tokenizer_class]
    tokenizer: Tokenizer = kind.make(found)
    for role in ("unk_token", "cls_token", "sep_token") if "cls_token" in kind.tokens else ():
        if tokenizer.token_to_id(found.name(role)) is None:
            raise InputError(f"{found.vocabulary[0]} has no {found.name(role)}, the {role}", "download the model again")
    named = {str(token) for token in found.named.values()}
    others = (token for token in (*found.named.values(), *found.extra) if str(token) not in found.listed)
    tokens = []
    for given in (*found.listed.values(), *others):  # of several with the same text the last one counts
        token = AddedToken(given, special=True) if isinstance(given, str) else given
        token.special |= str(token) in named
        tokens.append(token)
    tokenizer.add_tokens(tokens)
    tokenizer.post_processor = kind.frame(found, tokenizer)
    return tokenizer


def _read(file: Path) -> Json:
    return read_object(file, "model folder", "download the model again") if file.is_file() else {}


def _token(given: Any) -> Token:
    """A token as a file of settings has it."""
    if not isinstance(given, dict):
        return str(given)
    return AddedToken(given["content"], **{name: bool(given[name]) for name in _FLAGS if name in given})


def _wordpiece(found: VocabularyFolder) -> Tokenizer:
    model = models.WordPiece(models.WordPiece.read_file(str(found.vocabulary[0])), unk_token=found.name("unk_token"))
    tokenizer = Tokenizer(model)
    strips = found.settings.get("strip_accents")
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=found.flag("tokenize_chinese_chars", True),
        strip_accents=None if strips is None else bool(strips),
        lowercase=found.flag("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _bytelevel(found: VocabularyFolder) -> Tokenizer:
    vocabulary, merges = models.BPE.read_file(*map(str, found.vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=found.flag("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram(found: VocabularyFolder, pieces: list[tuple[str, float]], unk_id: int, steps: list[Any]) -> Tokenizer:
    """With the normalizers ``steps``, and spaces as ALBERT and XLM-RoBERTa have them."""
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id))
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
    scheme = "always" if found.flag("add_prefix_space", True) else "never"
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, scheme)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(spaces)
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
    return tokenizer


def _charsmap(found: VocabularyFolder) -> list[Any]:
    charsmap = found.proto.normalizer_spec.precompiled_charsmap
    return [normalizers.Precompiled(charsmap)] if charsmap else []


def _xlm_roberta(found: VocabularyFolder) -> Tokenizer:
    first = [(found.name(role), 0.0) for role in ("bos_token", "pad_token", "eos_token", "unk_token")]
    pieces = [*first, *found.pieces[3:], (found.name("mask_token"), 0.0)]
    return _unigram(found, pieces, 3, _charsmap(found))


def _camembert(found: VocabularyFolder) -> Tokenizer:
    pad, unknown = ((found.name(role), 0.0) for role in ("pad_token", "unk_token"))
    first = [("<s>NOTUSED", 0.0), pad, ("</s>NOTUSED", 0.0), unknown, ("<unk>NOTUSED", -100.0)]
    pieces = [*first, *found.pieces[1:], (found.name("mask_token"), 0.0)]
    return _unigram(found, pieces, [piece for piece, _ in pieces].index(unknown[0]), _charsmap(found))


def _albert(found: VocabularyFolder) -> Tokenizer:
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not found.flag("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if found.flag("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    return _unigram(found, found.pieces, 1, [*steps, *_charsmap(found)])


def _deberta(found: VocabularyFolder) -> Tokenizer:
    pieces, unknown = found.pieces, (found.name("unk_token"), 0.0)
    stated = int(found.settings.get("unk_id") or 1)
    tokenizer = Tokenizer(models.Unigram(pieces, pieces.index(unknown) if unknown in pieces else stated))
    steps: list[Any] = [normalizers.Lowercase()] if found.flag("do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    scheme = "always" if found.flag("add_prefix_space", True) else "first"
    apart = [pre_tokenizers.Punctuation("isolated")] if found.flag("split_by_punct", False) else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*apart, pre_tokenizers.Metaspace(SPACE, scheme)])
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
    return tokenizer


def _ids(found: VocabularyFolder, tokenizer: Tokenizer, *roles: str) -> list[tuple[str, int]]:
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return [(name, vocabulary[name]) for name in map(found.name, roles)]


def _frame_bert(found: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    (cls, _), (sep, _) = special = _ids(found, tokenizer, "cls_token", "sep_token")
    single = f"{cls}:0 $A:0 {sep}:0"
    return processors.TemplateProcessing(single=single, pair=f"{single} $B:1 {sep}:1", special_tokens=special)


def _frame_roberta(found: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    cls, sep = _ids(found, tokenizer, "cls_token", "sep_token")
    is_bytelevel = found.tokenizer_class == "RobertaTokenizer"
    trims = not is_bytelevel or found.flag("trim_offsets", True)
    return processors.RobertaProcessing(sep, cls, trims, is_bytelevel and found.flag("add_prefix_space", False))


def _frame_xlm_roberta(found: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    (bos, _), (eos, _) = special = _ids(found, tokenizer, "bos_token", "eos_token")
    return processors.TemplateProcessing(
        single=[bos, "$A", eos], pair=[bos, "$A", eos, eos, "$B", eos], special_tokens=special
    )


def _frame_gpt2(found: VocabularyFolder, tokenizer: Tokenizer) -> Any:
    bos, eos = _ids(found, tokenizer, "bos_token", "eos_token")
    begins, ends = found.flag("add_bos_token", False), found.flag("add_eos_token", False)
    parts = [
        " ".join([*([f"{bos[0]}:{i}"] if begins else []), f"${text}:{i}", *([f"{eos[0]}:{i}"] if ends else [])])
        for i, text in enumerate("AB")
    ]
    special = [*([bos] if begins else []), *([eos] if ends else [])]
    return processors.TemplateProcessing(single=parts[0], pair=" ".join(parts), special_tokens=special)


@dataclass(frozen=True)
class _Kind:
    """A class of transformers: its files, its own special tokens, and what it makes of them."""

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
