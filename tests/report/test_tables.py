"""Answers and their scores as people read them."""

from dataclasses import asdict
from typing import Any

from greenadapt.inference.qa.answering import compare_rows, score_rows
from greenadapt.inference.qa.lookups import sentence_around
from greenadapt.report.tables import MarkedLine, answer_lines, assessment, comparison_tables, loss_tables, scores_table
from greenadapt.tasks.spans import score_answer
from tests.support.small_texts import MEASURED


def test_each_text_and_tokenization_has_a_row() -> None:
    (table,) = loss_tables({"losses": {"heldout": MEASURED, "general": MEASURED}})
    assert table.columns == ["text", "read by", "inputs", "masked", "before", "after", "change"]
    assert table.rows[0] == ["held-out text", "the base tokenizer", "2,000", "12,345", "6.5000", "2.2500", "-4.2500"]
    assert table.rows[1] == ["held-out text", "the expanded tokenizer", "2,000", "40", "7.2500", "7.5000", "+0.2500"]
    assert [row[0] for row in table.rows[2:]] == ["general text"] * 2


def _validated(verdict: str, *rows: tuple[float, float, float]) -> dict[str, Any]:
    """What cross-validation found: difference and interval of both tokenizations, base and expanded."""
    models: list[dict[str, Any]] = [{"read_by": "base model", "score": 0.5}]
    for view, (difference, low, high) in zip(("mean", "base", "expanded"), rows, strict=True):
        gain = {"difference": difference, "low": low, "high": high}
        models.append({"read_by": view, "score": 0.5 + difference, **gain})
    return {"main": "f1", "verdict": verdict, "rows": models}


def test_the_advice_of_cross_validation() -> None:
    zero, sure = (0.0, -0.01, 0.01), (0.018, 0.004, 0.032)
    [helps] = assessment(_validated("helps", sure, zero, (0.009, -0.01, 0.03)))
    assert helps.startswith("Adaptation helps: +1.8 F1 (+0.4 to +3.2) over the base model.")
    [unclear] = assessment(_validated("unclear", zero, zero, zero))
    assert "Keep the base model" in unclear
    [hurts] = assessment(_validated("hurts", (-0.02, -0.03, -0.01), zero, zero))
    assert "-2.0 F1 (-3.0 to -1.0)" in hurts
    assert "--min-count" in hurts
    _, single = assessment(_validated("unclear", zero, sure, (0.02, 0.01, 0.03)))
    assert "--pool expanded" in single
    untrained = _validated("unclear", zero, zero, zero)
    untrained["rows"] = [row | {"score": 0.0} for row in untrained["rows"]]
    [advice] = assessment(untrained)
    assert "--epochs" in advice


Json = dict[str, Any]
NAMES = {"base_model": "bert", "mean": "green-bert"}
CONTEXT = "MERS is a disease.\nMERS-CoV was first isolated in\nsputum from Jeddah in 2012. It is in camels."


def plain(line: MarkedLine) -> str:
    note = f" ({line.note})" if line.note else ""
    assert not line.before or not line.label  # whose answer it is is no part of its sentence
    return f"{line.label}{line.before}{line.answer}{line.after}{note}"


def candidate(text: str, score: float, context: str = CONTEXT, document: str = "paper.txt") -> Json:
    if not text:
        where: Json = {"start": None, "end": None, "sentence": "", "sentence_start": None}
    else:
        start = context.index(text)
        first, last = sentence_around(context, start, start + len(text))
        where = {"start": start, "end": start + len(text), "sentence": context[first:last], "sentence_start": first}
    return {"answer": text, "score": score, "logit": 3.5, "document": document, **where}


def row(*answers: Json, gold: list[str] | None = None, **compared: Json) -> Json:
    def scored(answer: Json) -> Json:
        return answer if gold is None else {**answer, **asdict(score_answer(answer["answer"], gold, is_second=True))}

    extra: Json = {} if gold is None else {"gold": gold}
    extra |= {"compared": {name: scored(answer) for name, answer in compared.items()}} if compared else {}
    return {"id": "7", "question": "When was it isolated?", **scored(answers[0]), "answers": list(answers), **extra}


def lines(of: Json) -> list[str]:
    return [plain(line) for line in answer_lines(of)]


def test_the_answer_is_marked_in_its_sentence() -> None:
    view = answer_lines(row(candidate("2012", 0.934), candidate("in camels", 0.004), candidate("", 0.05)))
    assert view == [
        MarkedLine("MERS-CoV was first isolated in sputum from Jeddah in ", "2012", ".", "93 %, paper.txt"),
        MarkedLine("", "in camels", "", "0 %, paper.txt"),
        MarkedLine("", "no answer", "", "5 %, paper.txt"),
    ]


def test_no_answer_and_gold_answers_have_their_words() -> None:
    assert lines(row(candidate("", 0.93, document=""))) == ["no answer (93 %)"]
    no_choice = candidate("", 0.0, document="") | {"logit": None}
    assert lines(row(no_choice)) == ["no answer (there is nothing to choose from)"]
    gold = ["in 2012 ", "June 2012", "in 2012"]
    assert lines(row(candidate("2012", 0.5), gold=gold))[1] == "gold: in 2012 | June 2012 (F1 66.67)"
    assert lines(row(candidate("2012", 0.5), gold=[]))[1] == "gold: no answer (F1 0.00)"


def questions(n: int = 40, gold: list[str] | None = ["2012"], *, impossible: int = 0) -> list[Json]:  # noqa: B006
    """Questions that the base model answers wrongly, and ours rightly but for every fourth."""
    records = []
    for i in range(n):
        ours = candidate("sputum" if i % 4 == 0 else "2012", 0.5)
        golds = [] if i < impossible else gold
        compared = {"base_model": candidate("in camels" if i % 2 else "2012", 0.5), "base": ours, "expanded": ours}
        records.append(row(ours, gold=golds, **compared) | {"id": f"q{i}"})
    return records


def test_the_table_of_scores() -> None:
    rows, groups = questions(impossible=4), [str(i // 2) for i in range(40)]
    scores = score_rows(rows, groups)
    table = scores_table(scores)
    assert table.title == "Scores in percent: 40 questions on 20 contexts; contexts resampled"
    assert [line[0] for line in table.rows] == [
        *("EM", "F1", "substring", "EM, has answer", "F1, has answer", "substring, has answer"),
        *("EM, no answer", "F1, no answer", "substring, no answer"),
    ]
    assert {len(line) for line in table.rows} == {len(table.columns)}
    low, high = scores["intervals"]["f1"]
    assert table.rows[1] == ["F1", f"{100 * scores['f1']:.2f}", f"{100 * low:.2f} to {100 * high:.2f}", "40"]
    assert table.rows[4][3] == "36"


def test_the_tables_of_a_comparison() -> None:
    comparison = compare_rows(questions(), [str(i // 2) for i in range(40)], NAMES)
    tables = comparison_tables(comparison)
    assert [table.title for table in tables] == [
        f"{name} in percent: 40 questions on 20 contexts; contexts resampled" for name in ("EM", "F1", "substring")
    ]
    table = tables[1]
    assert [line[0] for line in table.rows] == [
        *("the base model", "the base tokenizer", "the expanded tokenizer", "both tokenizers, averaged"),
    ]
    assert {len(line) for line in table.rows} == {len(table.columns)}
    assert table.rows[0][3:] == ["", "", ""]
    difference = comparison["models"][3]["differences"]["f1"]
    assert table.rows[3][1] == "75.00"
    assert table.rows[3][3:] == [
        "+25.00",
        f"{100 * difference['low']:+.2f} to {100 * difference['high']:+.2f}",
        "includes zero" if difference["low"] <= 0 else "better",
    ]


def test_which_is_better_is_said_only_where_the_interval_shows_it() -> None:
    def verdict(base: list[str], n: int = 40) -> str:
        rows = [
            row(candidate("2012", 0.5), gold=["2012"], base_model=candidate(base[i % len(base)], 0.5)) for i in range(n)
        ]
        table = comparison_tables(compare_rows(rows, [str(i) for i in range(n)], NAMES))[0]
        assert [line[0] for line in table.rows] == ["the base model", "green-bert"]
        return table.rows[1][-1]

    assert verdict(["sputum"]) == "better"
    assert verdict(["2012"]) == "includes zero"
    assert verdict(["2012"] * 39 + ["sputum"]) == "includes zero"
    assert verdict(["sputum"], n=9) == "too few questions"
    rows = [row(candidate("sputum", 0.5), gold=["2012"], base_model=candidate("2012", 0.5)) for _ in range(40)]
    assert comparison_tables(compare_rows(rows, [str(i) for i in range(40)], NAMES))[2].rows[1][-1] == "worse"
