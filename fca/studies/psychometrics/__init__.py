"""Psychometrics of a test set: do items fit, measure one ability, and treat all models alike?"""
