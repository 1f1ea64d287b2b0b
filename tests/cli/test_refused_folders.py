"""Folders and files that cannot be used: one line that names the path as it was typed, exit code 2."""

import os

import pytest

from fca.cli import run


def test_a_path_that_the_system_refuses_is_one_line(fca, monkeypatch, tmp_path):
    def refused(*_):
        raise PermissionError(13, "Permission denied", f"{tmp_path}/locked/runs")

    monkeypatch.setattr(run, "job_of", refused)
    code, _, err = fca(f"outputs={tmp_path}/locked")
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"outputs = {tmp_path}/locked; allowed: a path that can be used (Permission denied: " in err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
@pytest.mark.parametrize("words", [["outputs=locked"], ["outputs=locked/deeper"]])
def test_a_folder_that_is_read_only_is_refused(fca, tmp_path, words):
    (tmp_path / "locked").mkdir(mode=0o555)
    code, _, err = fca(*words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "locked cannot be written to" in err


def test_a_folder_of_hydra_that_is_a_file_is_one_line(fca, tmp_path):
    (tmp_path / "file.txt").write_text("text")
    code, _, err = fca("hydra.run.dir=file.txt", "sweep.print=true")
    assert (code, len(err.splitlines())) == (2, 1)
    assert (
        "hydra.run.dir = file.txt; allowed: a path that can be used (File exists: file.txt); next: mend the path" in err
    )
    assert "or choose hydra.run.dir=PATH" in err


def test_a_folder_that_is_read_only_is_refused_for_everybody(fca, tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for all but root
    code, _, err = fca("outputs=locked/deeper")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "outputs = locked/deeper; allowed: a folder that exists or can be made; locked cannot be written to" in err
