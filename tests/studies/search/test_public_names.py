"""What notebooks import."""

import numpy as np

from fca.studies.search import Domain, make_policy


def test_a_search_of_a_domain_is_made_of_the_public_names():
    domain = Domain({"time": ["day", "night"], "weather": ["sun", "rain", "fog"]})
    policy = make_policy("random", domain, seed=0)
    empty = np.array([], dtype=int)
    assert 0 <= policy.next(empty, empty, empty) < len(domain.subdomains) == 6
