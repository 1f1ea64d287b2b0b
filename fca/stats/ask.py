"""One loop that asks and stops, for adaptive tests and searches, live and replayed.

A *policy* chooses: its `next` gives the next item from what was answered so far. An *asker* holds a policy, the answers
and the reason to stop. A function *answers*: it runs a network, has images drawn, or looks up a stored response.

A live answer is first looked up in the run's journal, and written there once it is made. Choices depend on a seed and
on answers alone, so that a process that goes on from a journal asks the same questions as the one that was killed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer", contravariant=True)


class Asker(Protocol[Question, Answer]):
    """What `ask_until_done` needs of a test or a search."""

    def ask(self) -> Question | None:
        """The next question; None where there is none, or none before the questions in hand are answered."""

    def tell(self, question: Question, answer: Answer) -> None:
        """Record an answer. Questions are answered in the order in which they were asked."""


def ask_until_done(asker: Asker[Question, Answer], answer: Callable[..., Answer], in_hand: int = 1) -> None:
    """Ask, answer and record until the asker has no question.

    answer:  called with all questions in hand, the oldest first; it answers that one, and may begin work on the others.
    in_hand: questions that are asked before the oldest is answered.

    >>> asker = Listed(["a", "b", "c"])
    >>> ask_until_done(asker, lambda oldest, *others: print(oldest, others), in_hand=2)
    a ('b',)
    b ('c',)
    c ()
    """
    questions: deque[Question] = deque()
    while True:
        while len(questions) < in_hand and (question := asker.ask()) is not None:
            questions.append(question)
        if not questions:
            return

        answered = answer(*questions)
        asker.tell(questions.popleft(), answered)


class Listed(Generic[Question]):
    """Asks questions that are known beforehand, one after the other."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._questions = iter(questions)

    def ask(self) -> Question | None:
        """The next of the list."""
        return next(self._questions, None)

    def tell(self, question: Question, answer: object) -> None:
        """No question depends on an answer."""
