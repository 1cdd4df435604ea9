"""ONES: the evolution of schedules, one operator after another, and the policy that deploys the best of them.

Pure: numpy only, no clock, no randomness but `draws`, and nothing here knows how a plan is carried out.
"""
