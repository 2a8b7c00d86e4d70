"""Real text in languages whose words are written differently from English, and tokenizers trained on it."""

import json
import unicodedata
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

# The first article of the Universal Declaration of Human Rights, and sentences with what is hard in each language.
TEXTS = {
    "de": [
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.",
        "Die Donaudampfschifffahrtsgesellschaft bezahlt Krankenversicherungsbeiträge; Fußgänger, STRASSE und Straße.",
    ],
    "tr": [
        "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler.",
        "İSTANBUL'da ILIK ışık, İzmir'de ince iplik; ISPARTA, ısırgan, İNCİ ve inci.",
    ],
    "ar": [
        "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
        "وقد وهبوا عقلا وضميرا، وعليهم أن يعامل بعضهم بعضا بروح الإخاء.",
        "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ؛ كـــتاب.",
    ],
    "fa": ["تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند."],
    "hi": [
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
        "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    ],
    "th": ["มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม"],
    "zh": ["人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"],
    "ja": [
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
        "カタカナ語もＡＢＣもある。",
    ],
    "ko": ["모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."],
    "vi": ["Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi."],
}
LINES = [line for lines in TEXTS.values() for line in lines]
SPECIALS = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
STYLES = ("wordpiece", "wordpiece-uncased", "bytelevel", "unigram", "unigram-uncased", "bpe-whole-text")


@cache
def _trained(style: str) -> str:
    composed_and_decomposed = [unicodedata.normalize(form, line) for form in ("NFC", "NFD") for line in LINES]
    size = 500 if style == "wordpiece-uncased" else 900
    options: dict[str, Any] = {"vocab_size": size, "special_tokens": list(SPECIALS), "show_progress": False}
    if style.startswith("wordpiece"):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=style.endswith("uncased"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(**options)
    elif style == "bytelevel":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(**options, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    elif style.startswith("unigram"):
        tokenizer = Tokenizer(models.Unigram())
        lower = [normalizers.Lowercase()] if style.endswith("uncased") else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        trainer = trainers.UnigramTrainer(unk_token="[UNK]", **options)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
        # So few characters that others are spelled in bytes.
        trainer = trainers.BpeTrainer(**options, limit_alphabet=150)
    tokenizer.train_from_iterator(composed_and_decomposed * 3, trainer)
    return tokenizer.to_str()


def language_tokenizer(style: str) -> Tokenizer:
    """A tokenizer of one of ``STYLES``, trained on ``LINES`` composed and decomposed."""
    tokenizer = Tokenizer.from_str(_trained(style))
    if style.startswith("unigram"):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    if style == "bpe-whole-text":
        tokenizer = _with_byte_fallback(tokenizer.to_str(), "[UNK]")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return tokenizer


def _with_byte_fallback(trained: str, unknown: str) -> Tokenizer:
    """A trained BPE that spells other characters in bytes, without pre-tokenizer."""
    state = json.loads(trained)
    vocabulary = state["model"]["vocab"]
    vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
    state["model"] |= {"unk_token": unknown, "fuse_unk": True, "byte_fallback": True}
    state |= {"pre_tokenizer": None, "added_tokens": []}
    return Tokenizer.from_str(json.dumps(state))
