"""Which programs go on to all images, where draws of their accuracies are planted."""

from types import SimpleNamespace

import numpy as np

from fca.studies.recommend import screening
from fca.studies.recommend.evidence import Program
from fca.studies.recommend.screening import FINALISTS, finalists


def program(size, depth="whole"):
    return Program("net", "w", size, depth, "fp32", "probe")


def screened(programs, draws, sizes, lines):
    return SimpleNamespace(
        candidates=[SimpleNamespace(program=one) for one in programs],
        compared=list(range(len(programs))),
        draws=np.asarray(draws),
        sizes=np.asarray(sizes),
        limits=SimpleNamespace(within=0.01),
        lines=[SimpleNamespace(candidate=position) for position in lines],
    )


def test_the_answer_that_is_certain_is_alone():
    programs = [program(size) for size in (224, 192, 160)]
    comparison = screened(programs, [[0.9, 0.7, 0.5]] * 10, [3.0, 2.0, 1.0], lines=[0])
    assert finalists(comparison, {one: one.size for one in programs}) == [224]


def test_lines_of_the_answer_come_first_then_what_is_likely_until_most_is_covered():
    programs = [program(size) for size in (224, 192, 160, 128)]
    draws = [[0.90, 0.90, 0.5, 0.90]] * 5 + [[0.90, 0.90, 0.5, 0.5]] * 93 + [[0.9, 0.5, 0.5, 0.5]] * 2
    comparison = screened(programs, draws, [4.0, 3.0, 2.0, 1.0], lines=[0])
    assert finalists(comparison, {one: one.size for one in programs}) == [224, 192]


def test_depths_of_one_pass_are_one_and_share_their_probability():
    programs = [program(224), program(224, "cut"), program(192)]
    draws = [[0.9, 0.5, 0.5]] * 30 + [[0.5, 0.9, 0.5]] * 30 + [[0.5, 0.5, 0.9]] * 40
    comparison = screened(programs, draws, [3.0, 2.5, 1.0], lines=[])
    assert finalists(comparison, {one: one.size for one in programs}) == [224, 192]


def test_no_more_than_so_many_however_uncertain():
    programs = [program(size) for size in range(20)]
    comparison = screened(programs, np.eye(20), np.ones(20), lines=[7])
    chosen = finalists(comparison, {one: one.size for one in programs})
    assert len(chosen) == FINALISTS == screening.FINALISTS
    assert chosen[0] == 7


def test_programs_of_another_command_are_left_out_and_without_any_there_is_none():
    programs = [program(224), program(192)]
    comparison = screened(programs, [[0.9, 0.8]] * 4, [2.0, 1.0], lines=[0])
    assert finalists(comparison, {programs[1]: "here"}) == ["here"]
    assert finalists(comparison, {}) == []
