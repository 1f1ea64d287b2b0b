"""Guided failure search: which subdomain to visit next, to find those where accuracy is lowest with few images."""

from fca.studies.generate.stats.domain import Domain, domain_of
from fca.studies.search.stats.models import Prediction
from fca.studies.search.stats.policies import POLICIES, Policy, make_policy
from fca.studies.search.stats.visits import SearchVisits

__all__ = ["POLICIES", "Domain", "Policy", "Prediction", "SearchVisits", "domain_of", "make_policy"]
