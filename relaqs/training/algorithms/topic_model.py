"""Latent Dirichlet allocation by variational Bayes: expectation on workers, maximisation on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError
from scipy.special import gammaln, psi

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.arguments import check_count, check_not_negative, check_positive, require
from relaqs.training.profile import Profile
from relaqs.training.protocol import Iteration
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.decomposition

MOST_ROUNDS = 100  # of a document's expectation, and
LEAST_CHANGE = 1e-3  # of its topics, after which it has settled: scikit-learn's defaults
TINY = np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Topics of documents. A row is a document; a column is a word and says how often it occurs there.

    The loss is the negative variational bound per word. It is the logarithm of scikit-learn's perplexity.
    Source: Hoffman, Blei, Bach 2010, Online learning for LDA, batch form.

    Args:
        sql: the SELECT of the documents.
        topics: how many topics to find.
        document_prior: of the Dirichlet distribution of topics in a document. Default: 1 / topics.
        topic_prior: of the Dirichlet distribution of words in a topic. Default: 1 / topics.
        tolerance: training has converged when a pass betters the loss by a smaller share than this.
        seed: of the initial topics, drawn as scikit-learn draws them.

    >>> import duckdb, relaqs
    >>> from relaqs.training import TopicModel
    >>> words = "9 * (i % 2) AS cat, 8 * (i % 2) AS dog, 9 - 9 * (i % 2) AS stock"
    >>> rows = duckdb.sql(f"SELECT {words} FROM range(600) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(TopicModel("SELECT * FROM points", topics=2)).result()
    >>> sorted(model.components_.argmax(axis=1).tolist())  # each topic's commonest word
    [0, 2]
    """

    sql: str
    topics: int = 10
    document_prior: float | None = None
    topic_prior: float | None = None
    tolerance: float = 1e-5
    seed: int = 0

    target: ClassVar[None] = None
    piece_rows: ClassVar[int] = 1024  # a document takes 12 µs with 6 words, 50 µs with 100

    def __post_init__(self) -> None:
        require("sklearn")
        check_count("topics", self.topics)
        check_count("seed", self.seed, least=0)
        check_not_negative("tolerance", self.tolerance)
        for name in ("document_prior", "topic_prior"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def begin(self, profile: Profile) -> Iteration:
        start = first_topics(profile, self.topics, self.seed)
        words = float(profile.mean.sum()) * profile.row_count
        prior = self._prior(self.topic_prior)
        before = np.inf

        def update(topics: FloatArray, sums: Sums) -> tuple[float, FloatArray, bool]:
            nonlocal before
            bound, statistics = sums
            loss = -(float(bound) + _dirichlet_bound(prior, topics)) / words
            is_final = before - loss <= self.tolerance * abs(loss)
            before = loss
            following = prior + np.exp(expected_logs(topics)) * statistics
            return loss, following, is_final

        return Iteration(start, update)

    def partial(self, model: FloatArray, rows: Rows) -> Sums:
        """Return the documents' part of the bound, and the expected counts by topic, but for a factor."""
        bound, counts = document_sums(rows.features, model, self._prior(self.document_prior))
        return np.asarray(bound), counts

    def estimator(
        self, profile: Profile, model: FloatArray
    ) -> sklearn.decomposition.LatentDirichletAllocation:
        from sklearn.decomposition import LatentDirichletAllocation

        estimator = LatentDirichletAllocation(
            self.topics,
            doc_topic_prior=self.document_prior,
            topic_word_prior=self.topic_prior,
            random_state=self.seed,
        )
        priors = self._prior(self.document_prior), self._prior(self.topic_prior)
        return topic_estimator(estimator, profile, model, *priors)

    def _prior(self, prior: float | None) -> float:
        return 1 / self.topics if prior is None else prior


def first_topics(profile: Profile, topics: int, seed: int) -> FloatArray:
    """Return the topics before training, drawn as scikit-learn draws them. Raises DataError for no words."""
    if not profile.mean.sum() > 0:
        raise DataError("the documents hold no words; a topic model's columns are counts of words")
    return np.random.RandomState(seed).gamma(100.0, 0.01, (topics, len(profile.names)))


def document_sums(counts: FloatArray, topics: FloatArray, prior: float) -> tuple[float, FloatArray]:
    """Return the documents' part of the bound, and the expected counts by topic, but for a factor.

    The factor is exp of the topics' expected logs.

    Raises DataError where a word occurs less than 0 times.
    """
    if (counts < 0).any():
        raise DataError("a word occurs less than 0 times; a topic model's columns are counts of words")
    words = np.exp(expected_logs(topics))
    documents = document_topics(counts, words, prior)
    shares = np.exp(expected_logs(documents))
    likelihoods = shares @ words + TINY
    bound = float((counts * np.log(likelihoods)).sum()) + _dirichlet_bound(prior, documents)
    return bound, shares.T @ (counts / likelihoods)


def topic_estimator(
    estimator: sklearn.decomposition.LatentDirichletAllocation,
    profile: Profile,
    topics: FloatArray,
    document_prior: float,
    topic_prior: float,
) -> sklearn.decomposition.LatentDirichletAllocation:
    """Return scikit-learn's estimator with the topics."""
    return fitted(
        estimator,
        profile.names,
        components_=topics,
        exp_dirichlet_component_=np.exp(expected_logs(topics)),
        doc_topic_prior_=document_prior,
        topic_word_prior_=topic_prior,
    )


def expected_logs(parameters: FloatArray) -> FloatArray:
    """Return the expectation of the logarithm of Dirichlet distributions, one a row."""
    return np.asarray(psi(parameters) - psi(parameters.sum(axis=1, keepdims=True)))


def document_topics(counts: FloatArray, words: FloatArray, prior: float) -> FloatArray:
    """Return the Dirichlet parameters of each document's topics, shape (documents, topics).

    Documents that have settled take no further part, so that each ends where it would end alone.

    Args:
        counts: how often each word occurs, shape (documents, words).
        words: exp of the topics' expected logs, shape (topics, words).
    """
    found = np.ones((len(counts), len(words)))
    open_rows, now, left = np.arange(len(counts)), found.copy(), counts
    for _ in range(MOST_ROUNDS):
        if not len(open_rows):
            break
        shares = np.exp(expected_logs(now))
        following = prior + shares * ((left / (shares @ words + TINY)) @ words.T)
        found[open_rows] = following
        is_open = np.abs(following - now).mean(axis=1) >= LEAST_CHANGE
        open_rows, now, left = open_rows[is_open], following[is_open], left[is_open]
    return found


def _dirichlet_bound(prior: float, parameters: FloatArray) -> float:
    """Return E[log p(x | prior) - log q(x | parameters)], summed over rows; scikit-learn counts alike."""
    size = parameters.shape[1]
    score = ((prior - parameters) * expected_logs(parameters)).sum()
    score += (gammaln(parameters) - gammaln(prior)).sum()
    score += (gammaln(prior * size) - gammaln(parameters.sum(axis=1))).sum()
    return float(score)
