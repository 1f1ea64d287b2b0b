"""Which names are spellings of one."""

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fca.names import check_meant, comparison_key, has_spellings
from fca.types import FcaError

WORDS = st.text(st.sampled_from("aA 01.-+é\u0301"), min_size=1, max_size=5)


@given(st.lists(WORDS, min_size=1, max_size=5, unique=True))
@example(["+1", "1."])
@example(["-0", "0"])
@example(["A  b", " a b"])
@example(["+-1", "-1"])
def test_many_names_at_once_are_compared_as_one_by_one(names):
    keys = [comparison_key(name) for name in names]
    assert has_spellings(pd.Series(names, dtype="str")) == (len(set(keys)) < len(keys))


def test_a_name_that_is_no_spelling_of_a_known_one_is_left_to_others():
    check_meant("class", ["fox"], ["cat", "dog"], "the data")
    with pytest.raises(FcaError, match=r"class = ' cat'; allowed: spelt as the data has it: 'cat'; next: correct"):
        check_meant("class", ["dog", " cat"], ["cat", "dog"], "the data")
