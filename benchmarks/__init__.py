"""Measurements of what is promised, one command each. They print ratios taken in one run; none is a test."""
