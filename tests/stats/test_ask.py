"""One loop asks and stops: the order of questions, and those in hand."""

from fca.stats.ask import FixedQuestions, ask_until_done


class Countdown:
    """Asks for 3, 2, 1, each only after the previous answer."""

    def __init__(self):
        self.number = 3
        self.answers = []
        self.is_waiting = False

    def ask(self):
        if self.is_waiting or not self.number:
            return None
        self.is_waiting = True
        return self.number

    def tell(self, question, answer):
        self.answers.append((question, answer))
        self.number -= 1
        self.is_waiting = False


def test_an_asker_that_waits_for_an_answer_is_asked_again():
    asker = Countdown()
    ask_until_done(asker, lambda number: number * 10, in_hand=4)
    assert asker.answers == [(3, 30), (2, 20), (1, 10)]


def test_a_question_without_value_is_a_question():
    answered = []
    ask_until_done(FixedQuestions([0, "", 1]), answered.append)
    assert answered == [0, "", 1]


def test_as_many_questions_as_asked_for_are_in_hand_and_the_oldest_is_answered():
    pending = []
    ask_until_done(FixedQuestions("abcd"), lambda *questions: pending.append("".join(questions)), in_hand=3)
    assert pending == ["abc", "bcd", "cd", "d"]
