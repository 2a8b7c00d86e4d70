from dataclasses import replace

import yaml
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import harmless
from greenadapt.report.cards import Card, code, escape_markdown, fence, section
from greenadapt.report.tables import Table
from tests.support.markdown import tokens_of


@given(st.text(st.sampled_from("a_*`<b>&[](x)!|\\~$\n #-1.") | st.characters(exclude_categories=["Cs", "Cc"])))
def test_escaped_text_is_read_as_itself(text: str) -> None:
    tokens = tokens_of(f"a {escape_markdown(text)} z")
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    content = "".join(token.content for token in tokens if token.type != "inline")
    assert content.split() == f"a {harmless(text)} z".split()


def test_nothing_in_a_card_turns_the_direction_of_writing() -> None:
    name = "a\u202egnp.exe"
    assert not {"\u202e"} & {*escape_markdown(name), *code(name), *fence([name])}
    assert "\x1b" not in escape_markdown("a\x1b[31m")


@given(st.text("`ab <\n"))
def test_code_is_read_as_itself(text: str) -> None:
    word = f"a{text}a"
    (content,) = [token.content for token in tokens_of(f"a {code(word)} z") if token.type == "code_inline"]
    assert content == " ".join(word.split())
    (block,) = [token.content for token in tokens_of(fence([word])) if token.type == "fence"]
    assert block == f"{word}\n"


def test_front_matter_is_what_was_given() -> None:
    evil = "m: x\nlicense: evil\n---"
    front = Card(model="m", base=evil, licence_of_base={"license": "a: b"}).front()
    assert yaml.safe_load(front.removeprefix("---\n").removesuffix("---")) == {
        "base_model": evil,
        "library_name": "transformers",
        "license": "a: b",
        "tags": ["greenadapt", "domain-adaptation"],
    }
    assert "base_model" not in Card(model="m").front()


def test_a_section_is_a_heading_and_a_table_of_text_and_numbers() -> None:
    table = Table("all scores", ["set", "from", "n"], [["a|b", "two\nlines", "3"]])
    head, line = "\n## All scores\n\n| set | from | n |\n", "| a\\|b | two lines | 3 |\n"
    assert section(table) == f"{head}| --- | ---: | ---: |\n{line}"
    assert section(replace(table, numbers=(2,))) == f"{head}| --- | --- | ---: |\n{line}"
