"""One loop of questions and answers, for adaptive tests and searches, live and replayed.

A *policy* chooses: its `next` returns the next item, given the answers so far. An *asker* has a policy, the answers
and the reason to stop. A function *answers*: it runs a network, has images drawn, or looks up a stored response.

A live answer is first looked up in the run's journal, and is written there once it is made. Choices depend only on a
seed and on answers, so that a process that resumes from a journal asks the same questions as the one that was killed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer", contravariant=True)


class Asker(Protocol[Question, Answer]):
    """The interface of a test or a search for `ask_until_done`."""

    def ask(self) -> Question | None:
        """The next question; None if there is none, or none until a pending question is answered."""

    def tell(self, question: Question, answer: Answer) -> None:
        """Record an answer. Questions are answered in the order in which they were asked."""


def ask_until_done(asker: Asker[Question, Answer], answer: Callable[..., Answer], in_hand: int = 1) -> None:
    """Run an adaptive test or a search: ask, answer and record until it has no further question.

    asker:   the test or search, which chooses each question by the answers so far.
    answer:  called with all pending questions, the oldest first. It returns the answer to the oldest one, and may begin
             work on the others.
    in_hand: number of questions that are pending at a time; fewer when the asker has no further question for now.

    >>> asker = FixedQuestions(["a", "b", "c"])
    >>> ask_until_done(asker, lambda oldest, *others: print(oldest, others), in_hand=2)
    a ('b',)
    b ('c',)
    c ()
    """
    pending: deque[Question] = deque()
    while True:
        while len(pending) < in_hand:
            question = asker.ask()
            if question is None:
                break
            pending.append(question)
        if not pending:
            return

        answer_to_oldest = answer(*pending)
        asker.tell(pending.popleft(), answer_to_oldest)


class FixedQuestions(Generic[Question]):
    """Asks a fixed list of questions, one after the other."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._questions = iter(questions)

    def ask(self) -> Question | None:
        """The next question of the list."""
        return next(self._questions, None)

    def tell(self, question: Question, answer: object) -> None:
        """Does nothing: no question depends on an answer."""
