"""Warnings are shown once, with their count, whoever they come from."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fca.cli.notices import FOLDER_VARIABLE, gathered, shared, text_key_and_names

log = logging.getLogger("fca.tests.notices")
LACKS = "run %s is left out: its row lacks one of %s"


def test_the_same_text_but_for_a_name_is_one_line_with_a_count(capsys):
    with gathered():
        for run in ("00aa", "00bb", "00cc", "00bb"):
            log.warning(LACKS, run, "dataset, model")
        log.warning("2 runs of digits are left out: their images are corrupted")
        log.warning("2 runs of digits are left out: their images are corrupted")
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err.splitlines() == [
        "run 00aa is left out: its row lacks one of dataset, model (4 times, also 00bb, 00cc)",
        "2 runs of digits are left out: their images are corrupted (2 times)",
    ]


def test_texts_that_differ_in_more_than_a_name_are_both_shown(capsys):
    with gathered():
        log.warning("left out: %s", "a fit of two subjects")
        log.warning("left out: %s", "no item in common")
        log.warning("%d of %d", 30, 40)
        log.warning("%d of %d", 32, 100)
        log.info("not worth a line")
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_texts_that_differ_in_numbers_alone_are_one_line_with_a_count(capsys):
    with gathered():
        log.warning("a training of %s has %d steps, on %d images, of %.1f s", "digits", 30, 4000, 0.5)
        log.warning("a training of %s has %d steps, on %d images, of %.1f s", "digits", 32, 4000, 0.25)
        log.warning("the share of resnet18 that is known is %.2f", 0.5)
        log.warning("the share of resnet50 that is known is %.2f", 0.5)
    assert capsys.readouterr().err.splitlines() == [
        "a training of digits has 30 steps, on 4000 images, of 0.5 s (2 times, also 32, 0.2)",
        "the share of resnet18 that is known is 0.50",
        "the share of resnet50 that is known is 0.50",
    ]


def test_what_comes_while_runs_work_is_shown_at_once_and_counted_at_the_end(capsys):
    with shared():
        log.warning(LACKS, "00aa", "model")
        log.warning(LACKS, "00bb", "model")
        log.warning(LACKS, "00bb", "model")
        assert capsys.readouterr().err == "run 00aa is left out: its row lacks one of model\n"
    assert capsys.readouterr().err == (
        "2 more such warnings, also 00bb: run 00aa is left out: its row lacks one of model\n"
    )


def test_what_a_killed_process_wrote_in_part_does_not_stop_the_command(capsys):
    with shared():
        folder = Path(os.environ[FOLDER_VARIABLE])
        (folder / ("0" * 16)).touch()  # killed before it wrote its first line
        log.warning(LACKS, "00aa", "model")
        [noted] = [file for file in folder.iterdir() if file.stat().st_size]
        with noted.open("a") as file:
            file.write('{"text": "run')  # killed, or the disk was full
        assert capsys.readouterr().err == "run 00aa is left out: its row lacks one of model\n"
    assert capsys.readouterr().err == ""


def test_workers_do_not_repeat_what_the_plan_has_shown(capsys):
    with shared():
        with gathered():
            log.warning("digits: a split has a single image")
        with gathered():
            log.warning("digits: a split has a single image")
        log.warning("digits: a split has a single image")
    assert capsys.readouterr().err == "digits: a split has a single image\n"


@pytest.mark.slow
def test_processes_of_one_command_share_what_they_showed(capsys):
    lines = ["import logging", "from fca.cli.notices import console", "console()"]
    code = "; ".join([*lines, f"logging.getLogger('fca.x').warning({LACKS!r}, 'w', 'model')"])
    with shared():
        log.warning(LACKS, "00aa", "model")
        workers = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(2)]
    assert [worker.stderr for worker in workers] == [b"", b""]
    assert "2 more such warnings, also w: run 00aa" in capsys.readouterr().err


def test_ids_of_runs_are_names_wherever_they_stand():
    record = logging.makeLogRecord({"msg": "run 0123456789ab was begun by another worker"})
    assert text_key_and_names(record)[1:] == ("run ... was begun by another worker", ["0123456789ab"])
