"""What people see of hostile text: every character shows itself, in the order in which it is, and nothing is lost."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.display import describe, escape_line, excerpt, shown


@pytest.mark.parametrize(
    ("text", "seen", "warning"),
    [
        ("rm \u202efdp.exe", "rm <U+202E>fdp.exe", "bidirectional"),
        ("\u2066a\u2069", "<U+2066>a<U+2069>", "bidirectional"),
        ("r\u200bm", "r<U+200B>m", "invisible"),
        ("a\u00adb", "a<U+00AD>b", "invisible"),
        ("tag\U000e0041", "tag<U+E0041>", "invisible"),
        ("x\ufe01y", "x<U+FE01>y", "invisible"),
        ("\u3164x", "<U+3164>x", "invisible"),
        ("a\u2028b\u2029c\x85d", "a<U+2028>b<U+2029>c<U+0085>d", "line or paragraph"),
        ("\x1b[2K\x1b]8;;http://evil\x07link", "<U+001B>[2K<U+001B>]8;;http://evil<U+0007>link", "control"),
        ("safe\rrm -rf", "safe<U+000D>rm -rf", "control"),
        ("del\x7f\x9b1m", "del<U+007F><U+009B>1m", "control"),
        ("a\u00a0b", "a<U+00A0>b", "unusual blanks"),
        ("x\u3000y", "x<U+3000>y", "unusual blanks"),
        ("rm p\u0430th", "rm p<U+0430>th", "mixed alphabets"),
        ("\u0430\u0441\u0435 x", "<U+0430><U+0441><U+0435> x", "only looks Latin"),
        ("\uff52\uff4d x", "<U+FF52><U+FF4D> x", "look-alike"),
        ("\U0001d42b\U0001d426", "<U+1D42B><U+1D426>", "look-alike"),
        ("a\ud800b", "a<U+D800>b", "broken"),
        ("a\ue000b", "a<U+E000>b", "private-use"),
        ("Z" + "\u0335" * 5, "Z\u0335\u0335\u0335<U+0335><U+0335>", "combining"),
        ("rm <U+0061> <12 blanks> ", "rm <U+0061> <12 blanks> ", "imitates"),
        ("\u202e" * 500, "<U+202E x 500>", "bidirectional"),
    ],
)
def test_what_hides_or_reorders_is_spelled_out_and_warned_of(text: str, seen: str, warning: str) -> None:
    """S31."""
    result = shown(text)
    assert result.text == seen
    assert any(warning in said for said in result.warnings)


@pytest.mark.parametrize(
    "text",
    [
        "ls -la && echo done",
        "日本語のファイル　名前",
        "中文文件.txt 한국어",
        "café naïve Ærøskøbing Đà Nẵng",
        "привет, а как у вас дела",  # noqa: RUF001 -- ordinary Russian
        "Ελληνικά και αγγλικά",
        "שלום עולם",
        "مرحبا",
        "emoji 😀 👍🏽 ❤️ done",
        "if x:\n\tindented\n        deeply\n\nend",
        "word " * 90 + "end",
    ],
)
def test_ordinary_text_of_any_language_is_unchanged(text: str) -> None:
    """S31."""
    assert shown(text).text == text
    assert shown(text).warnings == ()


def test_padding_before_a_second_command_is_counted_and_the_command_stays_in_sight() -> None:
    """S31: 5,000 blanks before "; rm"."""
    result = shown("echo hi" + " " * 5000 + "; rm -rf ~")
    assert result.text == "echo hi <4998 blanks> ; rm -rf ~"
    assert "padding: a long run of blanks" in result.warnings
    below = shown("echo hi" + "\n" * 300 + "rm -rf ~")
    assert below.text == "echo hi\n<299 empty lines>\nrm -rf ~"
    letters = shown("echo " + "a" * 5000 + "; rm")
    assert letters.text == "echo aaaaaaaa<4984 more of this character>aaaaaaaa; rm"
    tabs = shown("echo hi" + "\t" * 400 + "; rm")
    assert len(tabs.text) < 40
    assert tabs.text.endswith("; rm")


def test_a_long_text_is_whole_and_an_excerpt_keeps_its_end() -> None:
    """S31: the full length can always be reached."""
    text = "".join(f"word{number} " for number in range(5000)) + "; rm -rf ~"
    result = shown(text)
    assert result.text == text
    assert any("overlong line" in warning for warning in result.warnings)
    cut = excerpt(result.text, 1000)
    assert cut.endswith("; rm -rf ~")
    assert f"<{len(text) - 1000} characters not shown here" in cut
    assert len(cut) < 1100


def test_a_log_line_is_one_line() -> None:
    """S31, S75: the event log is escaped too."""
    assert escape_line("a\nb\tc\r\u2028d") == "a\\nb\\tc<U+000D><U+2028>d"


@given(st.text(max_size=300))
def test_no_text_leaves_a_character_that_does_not_show_itself(text: str) -> None:
    result = shown(text).text
    for char in result.replace("\ufe0f", "").replace("\ufe0e", ""):
        category = unicodedata.category(char)
        assert char in "\n\t\u3000" or category[0] not in "C" or char == " "
        assert category not in {"Zl", "Zp"}
    assert "\n" not in escape_line(text)


@given(st.text(alphabet="ab \n\u200b\u202e\u0430é日", max_size=200))
def test_text_that_differs_is_shown_differently(text: str) -> None:
    """Nothing is lost: one changed character always shows."""
    for at in range(0, len(text), 17):
        other = text[:at] + "Z" + text[at + 1 :]
        assert shown(other).text != shown(text).text


def test_a_megabyte_of_any_text_is_shown_in_seconds() -> None:
    started = time.monotonic()
    for text in ("echo hello\n" * 100_000, " \u202e" * 300_000, "\u0301" * 200_000, "p\u0430" * 200_000, "\n" * 1_000_000):
        shown(text)
    assert time.monotonic() - started < 20


def test_a_command_is_described_line_by_line_as_it_will_run() -> None:
    """EVO-5's prompt: exactly what will run, and no argument can pass for another."""
    seen = describe("execute", {"command": "cd x &&\n  rm \u202ey\ntimeout = 9", "timeout": 30})
    assert seen.lines() == ["execute", "  $ cd x &&", "  |   rm <U+202E>y", "  | timeout = 9", "  timeout = 30"]
    assert seen.warnings == ("characters that reorder text (bidirectional marks)",)


def test_a_change_is_described_by_its_diff_and_other_arguments_by_name() -> None:
    diff = "--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-old\n+new\n"
    seen = describe("edit_file", {"path": "f", "old_text": "old", "new_text": "new", "replace_all": False}, diff=diff)
    assert seen.lines()[:3] == ["edit_file", "  path = f", "  replace_all = false"]
    assert seen.lines()[-2:] == ["  -old", "  +new"]
    assert describe("write_file", {"path": "f", "content": "x"}, diff="").lines()[-1] == "  (nothing changes)"
    other = describe("send", {"to": ["a", "é"], "body": "one\ntwo"})
    assert other.lines() == ["send", '  to = ["a", "é"]', "  body = 2 lines:", "  | one", "  | two"]
