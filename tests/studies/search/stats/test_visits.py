"""What a policy sees of visits that are not answered yet."""

from types import SimpleNamespace

from fca.stats.ask import ask_until_done
from fca.studies.search.stats import SearchVisits


def test_a_policy_sees_visits_in_hand_without_images_whatever_their_number():
    histories = []

    def next_subdomain(visited, correct, n_images):
        histories.append((visited.tolist(), correct.tolist(), n_images.tolist()))
        return len(visited) % 7

    visits = SearchVisits(SimpleNamespace(next=next_subdomain))
    questions = (visits.ask() for _ in range(40))
    ask_until_done(SimpleNamespace(ask=lambda: next(questions, None), tell=visits.tell), lambda *_: (1, 2), in_hand=3)
    for number, (visited, correct, n_images) in enumerate(histories):
        answered = max(0, number - 2)
        assert visited == [visit % 7 for visit in range(number)]
        assert correct == [1] * answered + [0] * (number - answered)
        assert n_images == [2] * answered + [0] * (number - answered)
    assert visits.history.shape == (3, 40)
