"""The paragraphs of manual pages in roff."""

from tests.conftest import benchmark_module

PAGE = r""".\" a comment
.TH TAR 1 "13. Juli 2020"
.SH BEZEICHNUNG
tar \- ein Archivierungswerkzeug
.PP
Die Option \fB\-\-create\fP erstellt
.I Archive
(\(lqWürde\(rq\&), siehe
.BR gzip (1).
.nf
int main(void);
.fi
.TP
これは日本語の
文章です。 \" to the end
.ig
left out
..
"""


def test_paragraphs_are_plain_text() -> None:
    texts = [text for text in benchmark_module("man_pages").paragraphs(PAGE) if text]
    assert texts == [
        "tar - ein Archivierungswerkzeug",
        'Die Option --create erstellt Archive ("Würde"), siehe gzip (1).',
        "これは日本語の文章です。",
    ]
