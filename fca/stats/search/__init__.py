"""Guided failure search: which subdomain to visit next, to find those where accuracy is lowest with few images."""

from fca.stats.search.domain import Domain, domain_of
from fca.stats.search.models import Prediction
from fca.stats.search.policies import POLICIES, Policy, make_policy
from fca.stats.search.visits import SearchVisits

__all__ = ["POLICIES", "Domain", "Policy", "Prediction", "SearchVisits", "domain_of", "make_policy"]
