"""Small valid files of every format that greenadapt reads."""

import gzip
import io
import json
import shutil
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from greenadapt.config import SearchBy
from greenadapt.progress import Silent
from torture.mutation import PACKERS

_TEXT = """The patient had tachycardia.
The heart rate of 120 was measured: naïve, “quoted”.

Virus isolated from a sample
"""
_ROWS = [
    {
        "id": "a1",
        "title": "On hearts",
        "text": "The patient had tachycardia.\nThe rest.",
        "label": "ill",
        "number": 1.5,
    },
    {"id": 2, "title": None, "text": "The heart rate, “quoted”, is normal", "label": "well", "number": 2},
]
_PUBMED = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle//EN" "https://dtd.nlm.nih.gov/x.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">123</PMID><Article>
<ArticleTitle>[A virus&#x2014;isolated.]</ArticleTitle><Abstract><AbstractText Label="AIM">To <i>measure</i>
 H<sub>2</sub>O.</AbstractText><AbstractText>Heart &amp; cell.</AbstractText></Abstract></Article></MedlineCitation>
</PubmedArticle>
<PubmedBookArticle><BookDocument><PMID>5</PMID><Book><BookTitle>Book</BookTitle></Book></BookDocument></PubmedBookArticle>
</PubmedArticleSet>
"""
_JATS = """<article xmlns:xlink="http://www.w3.org/1999/xlink"><front><article-meta><title-group>
<article-title>A <b>title</b></article-title></title-group><abstract><sec><title>Aim</title>
<p>To measure<xref ref-type="bibr">1</xref> [, ] rates.</p></sec></abstract></article-meta></front><body><sec>
<p>The &alpha; cell <disp-formula><tex-math>x</tex-math></disp-formula> with <list><list-item><p>an item</p></list-item>
</list></p><fig><caption><p>no</p></caption></fig></sec></body></article>
"""
_PARSE = {
    "paper_id": "p1",
    "metadata": {"title": "A paper"},
    "abstract": [{"text": "An abstract."}],
    "body_text": [{"text": "The virus was isolated.", "section": "Intro"}, {"text": "A cell."}],
}
_PARSES = "document_parses"
_METADATA = f"""cord_uid,sha,source_x,title,abstract,pdf_json_files,pmc_json_files
u1,s1,PMC,A title,"An abstract, quoted",{_PARSES}/pdf_json/s1.json; x,{_PARSES}/pmc_json/PMC1.xml.json
u2,s2,PMC,Other,,{_PARSES}/pdf_json/s2.json,
"""
_PMC = """==== Front
Journal
Abstract
The heart rate was measured in a patient.
Key words: a
==== Body
The virus.
==== Refs
1. X
"""
_COMPILED = {
    "backend": "onnx",
    "quantize": "none",
    "head": "TokenClassification",
    "inputs": ["attention_mask", "token_type_ids"],
}
_CONLL = "-DOCSTART- O\n\nThe\tO\nvirus\tB-Disease\nheart\tI-Disease\n\nA O\ncell B-Gene\n"
_SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "T",
            "paragraphs": [
                {
                    "context": "The virus was isolated from a sample.",
                    "document_id": "d1",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "What was isolated?",
                            "answers": [{"text": "virus", "answer_start": 4}],
                            "is_impossible": False,
                        },
                        {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}
_TASKS = """[defaults]
max-length = 64
[[task]]
name = "ner"
kind = "ner"
train = "train.tsv"
dev = { one = "train.tsv" }
chunk = 10
[[task]]
name = "ill.1"
kind = "classification"
train = ["rows.jsonl"]
labels = "classes"
text-field = ["text", "title"]
metric = "accuracy"
"""
_RECIPE = """title = "A corpus"
licence = "CC BY"
format = "jsonl"
fields = ["text", "title"]
max_word_chars = 1000
[stated]
on = 2024-01-31
source = "somebody"
documents = 5
[[sources]]
url = "rows.jsonl"
size = 10
[[sources]]
url = "https://example.org/{number:04d}.xml"
first = 1
last = 3
md5_beside = true
[[sources]]
url = "https://example.org/list/"
index = "listing"
files = 'a\\d+\\.xml\\.gz'
"""
_SETTINGS = """workers = 2
quiet = true
[w2v]
epochs = 3
learning-rate = 0.05
[corpus-prepare]
field = ["text"]
"""
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
_CARD = "---\nlicense: apache-2.0\nlicense_link: https://example.org\ntags: [a, &b c, *b]\n---\n# A model\n"


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _vectors() -> dict[str, bytes]:
    words = ["the", "naïve", "heart", "</s>", "the"]
    rows = np.random.default_rng(0).normal(size=(len(words), 6)).astype("<f4")
    text = "".join(
        f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows.tolist(), strict=True)
    ).encode()
    head = f"{len(words)} 6\n".encode()
    binary = head + b"".join(
        word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows, strict=True)
    )
    return {
        "glove.txt": text,
        "w2v.vec": head + text,
        "w2v.bin": binary,
        "w2v.bin.gz": gzip.compress(binary, mtime=0),
        "fast.bin": _fasttext(words[:3], rows[:5]),
    }


def _fasttext(words: list[str], rows: npt.NDArray[np.float32]) -> bytes:
    """A model of fastText: arguments, dictionary, and the tables of input (words, then buckets) and output."""
    arguments = struct.pack("<12i d", 6, 5, 5, 1, 5, 1, 1, 1, len(rows) - len(words), 3, 6, 100, 1e-4)
    dictionary = struct.pack("<3i 2q", len(words), len(words), 0, 100, -1)
    dictionary += b"".join(word.encode() + b"\0" + struct.pack("<qb", 5, 0) for word in words)
    table = struct.pack("<?2q", False, len(rows), rows.shape[1]) + rows.tobytes()
    output = struct.pack("<?2q", False, len(words), rows.shape[1]) + rows[: len(words)].tobytes()
    return struct.pack("<2i", 793712314, 12) + arguments + dictionary + table + output


def write_texts(folder: Path) -> None:
    """Files of every corpus format, packed and not, of labels, questions, vectors and settings."""
    rows = "".join(json.dumps(row) + "\n" for row in _ROWS)
    table = 'id,text,label\n1,"The heart, ""quoted""\nrate",ill\n2,A cell,well\n'
    plain = {
        "a.txt": _TEXT,
        "rows.jsonl": rows,
        "rows.json": json.dumps(_ROWS),
        "rows.csv": table,
        "rows.tsv": table.replace(",", "\t"),
        "pubmed.xml": _PUBMED,
        "jats.nxml": _JATS,
        "parse.json": json.dumps(_PARSE),
        "metadata.csv": _METADATA,
        "article.txt": _PMC,
        "train.tsv": _CONLL,
        "words.conll": _CONLL,
        "squad.json": json.dumps(_SQUAD),
        "tasks.toml": _TASKS,
        "recipe.toml": _RECIPE,
        "settings.toml": _SETTINGS,
    }
    files = {name: content.encode() for name, content in plain.items()} | _vectors()
    members = {name: files[name] for name in ("a.txt", "rows.jsonl", "pubmed.xml", "parse.json")}
    parses = {
        "document_parses/pmc_json/PMC1.xml.json": files["parse.json"],
        "document_parses/pdf_json/s2.json": files["parse.json"],
    }
    inner = {
        "2020/metadata.csv": files["metadata.csv"],
        "2020/document_parses.tar.gz": gzip.compress(tar_of(parses), mtime=0),
    }
    files |= {"all.tar": tar_of({**members, "in/a.txt.gz": gzip.compress(files["a.txt"], mtime=0)})}
    files |= {
        "all.tar.gz": gzip.compress(files["all.tar"], mtime=0),
        "cord.tar.gz": gzip.compress(tar_of(inner), mtime=0),
    }
    files |= {f"a.txt{suffix}": pack(files["a.txt"]) for suffix, pack in PACKERS.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "compiled").mkdir()
    (folder / "compiled" / "compiled.json").write_text(json.dumps(_COMPILED))
    write_index(folder)


INDEX, OLD_INDEX, INDEX_ANSWERS = "index", "old-index", "index-answers.json"
"""An index with vectors, one as version 0.2.0 wrote it, and what the first one finds."""


class _Encoder:
    """Takes the place of a model: the vector of a text is drawn at random, by its letters."""

    def vectors(self, texts: list[str], *_: object) -> npt.NDArray[np.float32]:
        drawn = [np.random.default_rng([*text.encode()]).normal(size=16) for text in texts]
        return np.array(drawn, np.float32)


def index_answers(folder: Path) -> list[list[Any]]:
    """What an index finds, by words and by vectors."""
    from greenadapt.inference.search.index import Index

    index = Index(folder)
    index.__dict__["encoder"] = _Encoder()
    queries: list[tuple[str, SearchBy]] = [
        ("heart virus", "bm25"),
        ("cell", "bm25"),
        ("heart", "dense"),
        ("a", "hybrid"),
    ]
    return [
        [
            [passage.document, passage.start, passage.text, round(passage.score, 4)]
            for passage in index.search(query, by=by)
        ]
        for query, by in queries
    ]


def write_index(folder: Path) -> None:
    """An index with vectors, the same without checksums, and what is found in it."""
    from tokenizers import Tokenizer, models

    from greenadapt.inference.search.index import Builder, Index
    from greenadapt.inference.search.store import FolderStore, IndexFacts, IndexModel, IndexSettings

    draw, words = np.random.default_rng(0), ["heart", "virus", "cell", "patient", "rate", "sample", "naïve"]
    rows = [{"id": f"d{i}", "text": " ".join(draw.choice(words, 12))} for i in range(150)]
    documents = folder / "index-rows.jsonl"
    documents.write_text("".join(json.dumps(row) + "\n" for row in rows))
    Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(folder / "index-tokenizer.json"))
    settings = IndexSettings(vectors=True, paragraph_chars=100, format=None, fields=("text",), sample_by="line")
    model = IndexModel("attacker/evil", "0" * 64)
    facts = IndexFacts({str(documents): documents.name}, settings, model, normal_form="NFC")
    store = FolderStore(folder / INDEX)
    store.create(facts, folder / "index-tokenizer.json")
    index = Index(folder / INDEX)
    index.__dict__["encoder"] = _Encoder()
    store.write_facts(replace(facts, counts=Builder(index, Silent()).build()))
    (folder / INDEX_ANSWERS).write_text(json.dumps(index_answers(folder / INDEX)))
    shutil.copytree(folder / INDEX, folder / OLD_INDEX)
    values = json.loads((folder / OLD_INDEX / "index.json").read_text("utf-8"))
    for name in ("files", "sources", "seal", "normal_form"):
        del values[name]
    (folder / OLD_INDEX / "index.json").write_text(json.dumps(values))


def write_models(folder: Path) -> None:
    """Small models, an adapted one, and fine-tuned ones with one task and with two, each with its manifest."""
    from functools import partial

    from greenadapt.stages.finetune.compare import finetune
    from tests.conftest import tiny_model_in
    from tests.support.small_multitask import request
    from tests.support.small_served import make_models
    from tests.support.small_tasks import adapted, ner_request, session

    folder.mkdir(parents=True)
    make_models(folder)
    tiny_model_in(folder, "BertForMaskedLM", name="shards", max_shard_size="50KB")
    tiny_model_in(folder, "RobertaModel", name="bytelevel")
    tiny_model_in(folder, "XLMRobertaModel", name="unigram")
    for name in ("base", "adapted"):
        shutil.rmtree(folder / name, ignore_errors=True)
    model = adapted(partial(tiny_model_in, folder), architecture="BertForMaskedLM")
    (model / "modules.json").write_text(json.dumps(_MODULES))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    )
    (model / "2_Normalize").mkdir()
    (model / "README.md").write_text(_CARD)
    facts = {"corpus": "medicine", "model": {"name": "tiny", "source": str(folder / "base")}, "rows": 4}
    (model / "greenadapt.json").write_text(json.dumps(facts))
    finetune(session(folder, "run"), ner_request(folder, model))
    finetune(session(folder, "many"), request(folder, model))
