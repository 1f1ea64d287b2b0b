"""One loop asks and stops: order, questions in hand, and what a policy sees of visits that are not answered."""

from types import SimpleNamespace

import numpy as np

from fca.stats.ask import Listed, ask_until_done
from fca.studies.adaptive.stats import Rounds, make_pool, start_policy
from fca.studies.search.stats import SearchVisits


class Countdown:
    """Asks for 3, 2, 1, each only once the one before was answered."""

    def __init__(self):
        self.left, self.answers, self.in_hand = 3, [], False

    def ask(self):
        if self.in_hand or not self.left:
            return None
        self.in_hand = True
        return self.left

    def tell(self, question, answer):
        self.answers.append((question, answer))
        self.left, self.in_hand = self.left - 1, False


def test_an_asker_that_waits_for_an_answer_is_asked_again():
    asker = Countdown()
    ask_until_done(asker, lambda number: number * 10, in_hand=4)
    assert asker.answers == [(3, 30), (2, 20), (1, 10)]


def test_a_question_without_value_is_a_question():
    answered = []
    ask_until_done(Listed([0, "", 1]), answered.append)
    assert answered == [0, "", 1]


def test_as_many_questions_as_asked_for_are_in_hand_and_the_oldest_is_answered():
    seen = []
    ask_until_done(Listed("abcd"), lambda *questions: seen.append("".join(questions)), in_hand=3)
    assert seen == ["abc", "bcd", "cd", "d"]


def test_a_policy_sees_visits_in_hand_without_images_whatever_their_number():
    histories = []

    def next_subdomain(visited, correct, shown):
        histories.append((visited.tolist(), correct.tolist(), shown.tolist()))
        return len(visited) % 7

    visits = SearchVisits(SimpleNamespace(next=next_subdomain))
    questions = (visits.ask() for _ in range(40))
    ask_until_done(SimpleNamespace(ask=lambda: next(questions, None), tell=visits.tell), lambda *_: (1, 2), in_hand=3)
    for number, (visited, correct, shown) in enumerate(histories):
        answered = max(0, number - 2)
        assert visited == [visit % 7 for visit in range(number)]
        assert correct == [1] * answered + [0] * (number - answered)
        assert shown == [2] * answered + [0] * (number - answered)
    assert visits.history.shape == (3, 40)


def test_a_test_goes_on_until_it_is_enough_or_every_item_was_asked():
    pool = make_pool(None, np.repeat(["cat", "dog"], 50))
    for enough_after, asked in ((1, 20), (3, 60), (99, 100)):
        ends = []

        def is_enough(ends=ends, enough_after=enough_after):
            ends.append(len(ends))
            return len(ends) == enough_after

        rounds = Rounds(start_policy("random", pool, 0.2), np.random.default_rng(0), is_enough)
        ask_until_done(rounds, lambda positions: np.ones(len(positions), dtype=bool))
        assert rounds.policy.record.asked.sum() == asked
        assert len(np.unique(np.concatenate(rounds.positions))) == asked
