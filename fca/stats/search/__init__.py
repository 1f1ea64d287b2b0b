"""Guided failure search: which subdomain to visit next, to find those where accuracy is lowest with few images."""

from fca.stats.search.domain import Domain, domain_of

__all__ = ["Domain", "domain_of"]
