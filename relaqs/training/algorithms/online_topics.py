"""Latent Dirichlet allocation by mini-batches of documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.training.algorithms.topic_model import document_sums, expected_logs, first_topics, topic_estimator
from relaqs.training.arguments import check_count, check_not_negative, check_positive, require
from relaqs.training.elastic.protocol import MiniBatches
from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.decomposition


@dataclass(frozen=True, slots=True)
class Topics:
    """The weights of words in topics, shape (topics, words), and how many documents there are."""

    words: FloatArray
    documents: int


@dataclass(frozen=True, slots=True)
class OnlineTopics(MiniBatches):
    """Topics of documents, bettered with each mini-batch. A row is a document; a column counts a word in it.

    Each step is that of scikit-learn's LatentDirichletAllocation with `learning_method="online"`. A step of k
    times the rows counts as k steps. The loss is the negative variational bound of a document, but for the
    part of the topics themselves. Source: Hoffman, Blei, Bach 2010, Online learning for LDA.

    Args:
        sql: the SELECT of the documents.
        topics: how many topics to find.
        document_prior: of the Dirichlet distribution of topics in a document. Default: 1 / topics.
        topic_prior: of the Dirichlet distribution of words in a topic. Default: 1 / topics.
        offset: the larger, the less the first steps count; scikit-learn's learning_offset.
        decay: how fast later steps count less; scikit-learn's learning_decay.
        start_rows: and all that `MiniBatches` has.

    >>> import duckdb, relaqs
    >>> from relaqs.training import OnlineTopics
    >>> words = "9 * (i % 2) AS cat, 8 * (i % 2) AS dog, 9 - 9 * (i % 2) AS stock"
    >>> rows = duckdb.sql(f"SELECT {words} FROM range(600) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(OnlineTopics("SELECT * FROM points", topics=2, passes_most=3)).result()
    >>> sorted(model.components_.argmax(axis=1).tolist())  # each topic's commonest word
    [0, 2]
    """

    sql: str
    topics: int = 10
    document_prior: float | None = None
    topic_prior: float | None = None
    offset: float = 10.0
    decay: float = 0.7

    target: ClassVar[None] = None

    def __post_init__(self) -> None:
        MiniBatches.__post_init__(self)
        require("sklearn")
        check_count("topics", self.topics)
        check_positive("offset", self.offset)
        check_not_negative("decay", self.decay)
        for name in ("document_prior", "topic_prior"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def begin(self, profile: Profile) -> Topics:
        return Topics(first_topics(profile, self.topics, self.seed), profile.row_count)

    def rate(self, progress: float) -> float:
        return float((self.offset + progress + 1.0) ** -self.decay)

    def partial(self, state: Topics, rows: Rows, draw: int) -> Sums:
        """Return the documents' loss, and the expected counts by topic, but for a factor."""
        bound, counts = document_sums(rows.features, state.words, self._prior(self.document_prior))
        return np.asarray(-bound), counts

    def gradients(self, sums: Sums) -> Sums:
        return ()

    def update(self, state: Topics, sums: Sums, rows: int, rate: float) -> Topics:
        share = min(rate, 1.0)
        counts = np.exp(expected_logs(state.words)) * sums[1]
        wanted = self._prior(self.topic_prior) + (state.documents / rows) * counts
        return Topics((1.0 - share) * state.words + share * wanted, state.documents)

    def evaluate(self, state: Topics, rows: Rows) -> Sums:
        bound, _ = document_sums(rows.features, state.words, self._prior(self.document_prior))
        return (np.asarray(-bound),)

    def estimator(self, profile: Profile, state: Topics) -> sklearn.decomposition.LatentDirichletAllocation:
        from sklearn.decomposition import LatentDirichletAllocation

        estimator = LatentDirichletAllocation(
            self.topics,
            doc_topic_prior=self.document_prior,
            topic_word_prior=self.topic_prior,
            learning_method="online",
            learning_offset=self.offset,
            learning_decay=self.decay,
            random_state=self.seed,
        )
        priors = self._prior(self.document_prior), self._prior(self.topic_prior)
        return topic_estimator(estimator, profile, state.words, *priors)

    def _prior(self, prior: float | None) -> float:
        return 1 / self.topics if prior is None else prior
