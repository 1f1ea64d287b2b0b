"""What fca adds to in a store is a file of the store: never one that a link of a stranger's store leads to."""

import errno
import os

import pytest

from fca.store.files import open_to_append
from fca.store.journal import Journal
from tests.conftest import SMALL


@pytest.fixture
def diary(tmp_path):
    path = tmp_path / "home" / "diary.txt"
    path.parent.mkdir()
    path.write_text("mine\n")
    return path


def test_a_symbolic_link_is_replaced_and_what_it_leads_to_is_left_alone(diary, tmp_path):
    link = tmp_path / "log.txt"
    link.symlink_to(diary)
    with open_to_append(link) as file:
        file.write(b"a line\n")
    assert diary.read_text() == "mine\n"
    assert (link.is_symlink(), link.read_text()) == (False, "a line\n")


def test_a_link_to_nothing_makes_no_file_elsewhere(tmp_path):
    link = tmp_path / "log.txt"
    link.symlink_to(tmp_path / "new.txt")
    open_to_append(link).close()
    assert not (tmp_path / "new.txt").exists()
    assert link.is_file()


def test_a_further_name_of_a_file_gets_a_copy_and_goes_on_from_it(diary, tmp_path):
    other = tmp_path / "log.txt"
    os.link(diary, other)
    with open_to_append(other) as file:
        file.write(b"a line\n")
    assert diary.read_text() == "mine\n"
    assert other.read_text() == "mine\na line\n"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "log.txt")
    with pytest.raises(OSError, match="Not a regular file") as caught:
        open_to_append(tmp_path / "log.txt")
    assert caught.value.errno == errno.EINVAL


def test_what_is_appended_comes_after_what_was_there(tmp_path):
    for text in (b"one\n", b"two\n"):
        with open_to_append(tmp_path / "log.txt") as file:
            file.write(text)
    assert (tmp_path / "log.txt").read_bytes() == b"one\ntwo\n"


def test_a_journal_that_is_a_link_is_not_written_through(diary, tmp_path):
    (tmp_path / "journal.jsonl").symlink_to(diary)
    Journal(tmp_path / "journal.jsonl").add({"a": 1})
    assert diary.read_text() == "mine\n"
    assert Journal(tmp_path / "journal.jsonl").lines() == [{"a": 1}]


def test_the_log_of_an_unfinished_run_that_is_a_link_is_not_written_through(fca, diary, tmp_path):
    words = ["dataset=digits", "model=test_resnet", "subset.ncl=2", *SMALL]
    assert fca(*words)[0] == 0
    for row in (tmp_path / "outputs").glob("runs/*/row.json"):
        row.unlink()  # as if its worker had been killed
        (row.parent / "log.txt").unlink(missing_ok=True)
        (row.parent / "log.txt").symlink_to(diary)
    assert fca(*words)[0] == 0
    assert diary.read_text() == "mine\n"
    assert any("begin train" in log.read_text() for log in (tmp_path / "outputs").glob("runs/*/log.txt"))
