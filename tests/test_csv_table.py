"""The one reader and writer of tables: what people's files look like, and what would shift a column."""

import csv
import gzip
import io

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fca.csv_table import csv_line, csv_text, read_lines, read_table, with_types
from fca.types import FcaError

TWO = {"path": ["1.png", "2.png"], "label": ["cat", "dog"]}


def read(text, **keys):
    return read_table(text if isinstance(text, bytes) else text.encode(), "t.csv", **keys)


@pytest.mark.parametrize(
    "text",
    [
        "path,label\n1.png,cat\n2.png,dog\n",
        "path,label\n1.png,cat\n2.png,dog",
        "path,label\r\n1.png,cat\r\n2.png,dog\r\n",
        "path,label\r1.png,cat\r2.png,dog\r",
        "path;label\n1.png;cat\n2.png;dog\n",
        "path\tlabel\n1.png\tcat\n2.png\tdog\n",
        "sep=;\npath;label\n1.png;cat\n2.png;dog\n",
        "sep=|\r\npath|label\r\n1.png|cat\r\n2.png|dog\r\n",
        "\ufeffpath,label\n1.png,cat\n2.png,dog\n",
        "\ufeffpath,label\n1.png,cat\n2.png,dog\n".encode("utf-16-le"),
        "\ufeffpath\tlabel\r\n1.png\tcat\r\n2.png\tdog\r\n".encode("utf-16-be"),
        '"path","label"\n"1.png","cat"\n"2.png","dog"\n',
        " path , label \n1.png,cat\n2.png,dog\n",
        'path, "label"\n1.png, cat\n2.png, "dog"\n',
        "path,label\n1.png,cat,\n2.png,dog,\n",
        "path,label,,\n1.png,cat,,\n2.png,dog,,\n",
        "path,label,\n1.png,cat\n2.png,dog\n",
        "path,label,\n1.png,cat,,\n2.png,dog,,\n",
        "path;label;\n1.png;cat;\n2.png;dog;\n",
        "\n\npath,label\n\n1.png,cat\n   \n2.png,dog\n\n",
        "path,label\n1.png,cat\n2.png,dog\n,\n,\n",
        '"path","label"\n"1.png","cat"\n"2.png","dog"\n,\n,\n',
    ],
)
def test_one_table_in_many_forms_is_one_table(text):
    assert read(text).to_dict("list") == TWO


def test_cells_are_text_to_the_letter():
    cells = ["NA", "null", "None", "nan", "True", "01", "1.0", "1e5", " x", "caf\u00e9", "a#b", 'q"q', ""]
    for frame in (
        read("a,b\n" + "".join(f"{cell},y\n" for cell in cells)),
        read(csv_text(pd.DataFrame({"a": cells, "b": "y"}))),
    ):
        assert frame["a"].tolist() == cells


def test_a_semicolon_table_may_have_decimal_commas_and_a_comma_table_semicolons():
    assert read("path;label;w\n1.png;cat;1,5\n").to_dict("list") == {"path": ["1.png"], "label": ["cat"], "w": ["1,5"]}
    assert read("path,note\n1.png,a;b;c\n").to_dict("list") == {"path": ["1.png"], "note": ["a;b;c"]}


def test_comments_are_lines_and_only_where_a_table_may_have_them():
    text = "# source: us\nclass,group\n# pets\nc#,pet\n"
    assert read(text, comments=True).to_dict("list") == {"class": ["c#"], "group": ["pet"]}
    assert read("class,group\n#1,pet\n").to_dict("list") == {"class": ["#1"], "group": ["pet"]}


def test_a_column_without_a_name_is_called_by_its_place_unless_it_is_empty():
    assert list(read(",path,label\n0,1.png,cat\n")) == ["Unnamed: 0", "path", "label"]
    assert list(read("path,label,\n1.png,cat,\n2.png,dog,a note\n")) == ["path", "label", "Unnamed: 2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "path,label\n1.png,cat\n2.png,dog,a note\n",
            r"line 3 of t.csv = 3 cells: '2.png', 'dog', 'a note'; allowed: 2",
        ),
        (
            "path,label\n1.png,cat,a note\n2.png,dog,a note\n",
            r"line 2 of t.csv = 3 cells: .*'path', 'label'; next: put",
        ),
        ("path,label\n1.png,cat,\n2.png,dog,a note\n", r"line 3 of t.csv = 3 cells: '2.png', 'dog', 'a note'"),
        (
            "path,label\n1.png,cat,\n2.png,dog\n",
            r"line 3 of t.csv = 2 cells: '2.png', 'dog'; allowed: 3, as in the lines before it, which have separators",
        ),
        ("path,label\n1.png\n", r"line 2 of t.csv = 1 cell: '1.png'; allowed: 2"),
        (
            '"path","label"\n"1","1.png","cat"\n"2","2.png","dog"\n',
            r"line 2 of .*'1', '1.png', 'cat'.*row.names = FALSE",
        ),
        (
            "path,label,x\n1.png,cat\n",
            r"line 2 of t.csv = 2 cells: '1.png', 'cat'; allowed: 3, .*; next: add the missing",
        ),
        ('path,label,x\n"a\nb",cat,1\n1.png,cat\n', r"line 4 of t.csv = 2 cells"),
        ('path,label\n1.png,"cat\n2.png,dog\n', r"line 3 of t.csv = unexpected end of data; .*; next: close or remove"),
        ('path,label\n1.png,"cat"x\n', r"line 2 of t.csv = ',' expected after '\"'"),
        ("path,label,label\n1.png,cat,dog\n", r"columns of t.csv = 'label' twice; allowed: names that differ"),
        ("path,label, label\n1.png,cat,dog\n", r"columns of t.csv = 'label' twice"),
        ("", r"table in t.csv = no header; allowed: a first line"),
        (",,\n,,\n", r"table in t.csv = no header"),
        (b"path,label\n1.png,K\xe4fer\n", r"line 2 of t.csv = b'.*K\\xe4fer.*'; allowed: text in UTF-8 .*CSV UTF-8"),
        ("path,label\n1.png,cat\n2.png,d\0g\n", r"line 3 of t.csv = a byte of 0"),
        (
            "path,label\n1.png,cat\n".encode("utf-16-le"),
            r"line 1 of t.csv = a byte of 0; .*; next: save it as CSV UTF-8",
        ),
    ],
)
def test_a_table_that_may_mean_two_things_is_refused_by_line(text, message):
    with pytest.raises(FcaError, match=message):
        read(text)


WORDS = st.text(st.sampled_from("ab ,;\t\"'=-+@\r\n#01.é"), max_size=5)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=6))
@example([("'=a", "-1"), ("''@", "\r"), ("", " ")])
@example([("a", ""), ("", "")])
def test_what_is_written_is_read_again(lines):
    frame = pd.DataFrame(lines, columns=["=a", "b"], dtype="str")
    while len(frame) and not any(frame.iloc[-1]):
        frame = frame.iloc[:-1]  # lines of nothing at the end
    assert read(csv_text(frame)).to_dict("list") == frame.to_dict("list")


PLAIN = st.text(st.sampled_from("ab .1é#=-'"), max_size=4)


@given(st.lists(st.tuples(PLAIN, PLAIN), max_size=6))
@example([("a", "b"), ("", ""), ("", ""), ("c", ""), ("", "")])
def test_a_table_without_quotes_is_read_as_with_them(lines):
    """Which takes another reader."""
    plain = "".join(f"{a},{b}\n" for a, b in [("path", "label"), *lines])
    quoted = "".join(f'"{a}","{b}"\n' for a, b in [("path", "label"), *lines])
    assert read(plain).to_dict("list") == read(quoted).to_dict("list")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "'=", "''-"])
def test_no_text_begins_as_a_formula_and_every_one_comes_back(start):
    formula = f'{start}HYPERLINK("x")'
    frame = pd.DataFrame(
        {
            formula: [formula, "plain"],
            "kind": pd.Categorical([formula, "b"]),
            "n": [-1.5, 2.0],
        }
    )
    text = csv_text(frame)
    header, first_line, _ = csv.reader(io.StringIO(text, newline=""))
    for cell in (header[0], first_line[0], first_line[1]):
        assert cell.startswith("'")
    assert first_line[2] == "-1.5", "a number stays a number"

    columns = {formula: [formula, "plain"], "kind": [formula, "b"], "n": ["-1.5", "2.0"]}
    assert read(text).to_dict("list") == columns
    assert csv_line([formula]).startswith(("'", "\"'"))


def test_types_are_those_of_pandas():
    text = "a,b,c,d,e,f,g\n1,1.5,True,,x,2,NA\n2,,False,,,,4\n"
    expected = pd.read_csv(io.StringIO(text))
    pd.testing.assert_frame_equal(with_types(read(text)), expected)


def test_a_column_of_text_keeps_its_texts_to_the_letter():
    text = "kind,none,flag,big\nNA,null,True,123456789012345678901\nphoto,NA,,1\n,,x,\n"
    assert with_types(read(text)).astype(object).fillna("").to_dict("list") == {
        "kind": ["NA", "photo", ""],
        "none": ["null", "NA", ""],
        "flag": ["True", "", "x"],
        "big": ["123456789012345678901", "1", ""],
    }


def test_a_file_may_be_packed(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"path,label\n1.png,NA\n"))
    assert read_table(tmp_path / "t.csv.gz", "t").to_dict("list") == {"path": ["1.png"], "label": ["NA"]}
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"path,label\n1.png,NA\n")[:-9])
    with pytest.raises(OSError, match=r"end-of-stream|CRC"):
        read_table(tmp_path / "t.csv.gz", "t")


def test_a_table_line_by_line_has_the_same_cells():
    names, lines = read_lines(b"subject;'-1.png;b\na;1;0\nb;;1\n", "r.csv")
    assert (names, list(lines)) == (["subject", "-1.png", "b"], [["a", "1", "0"], ["b", "", "1"]])


def test_a_table_without_lines_has_its_columns():
    frame = read("path,label\n")
    assert (list(frame), len(frame)) == (["path", "label"], 0)
    assert frame["path"].str.strip().tolist() == []
