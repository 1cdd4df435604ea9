"""How far a job's answer still moves: the thesis's result-delta metric, and normalised losses for training.

Pure accumulators: each is fed one result after another and returns a number in [0, 1]. They know neither
what a job costs nor who runs it; what progress is expected next is `relaqs.prediction`'s to say.
"""

from relaqs.progress.cells import Cells, cells_of
from relaqs.progress.loss_delta import LossDelta
from relaqs.progress.result_delta import ResultDelta
from relaqs.progress.user_delta import UserDelta

__all__ = ["Cells", "LossDelta", "ResultDelta", "UserDelta", "cells_of"]
