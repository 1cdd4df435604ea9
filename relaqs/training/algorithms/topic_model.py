"""Latent Dirichlet allocation by variational Bayes, over all documents or by mini-batches of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError
from scipy.special import gammaln, psi

from relaqs.arguments import check_not_negative, check_positive, check_whole
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.protocol import MiniBatches, ShardCourse, ShardState, WholeParameters
from relaqs.training.rows import Profile, Rows, Sums

if TYPE_CHECKING:
    import sklearn.decomposition

MOST_ROUNDS = 100  # of a document's expectation, and
LEAST_CHANGE = 1e-3  # of its topics, after which it has settled: scikit-learn's defaults
TINY = np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Topics of documents. A row is a document; a column is a word and says how often it occurs there.

    The loss is the negative variational bound per word. It is the logarithm of scikit-learn's perplexity.
    Source: Hoffman, Blei, Bach 2010, Online learning for LDA, batch form. The topics can lie in shards on the
    workers of a cluster, cut by words: `db.train(job, parameters="sharded")`.

    Args:
        sql: the SELECT of the documents.
        topics: how many topics to find.
        document_prior: of the Dirichlet distribution of topics in a document. Default: 1 / topics.
        topic_prior: of the Dirichlet distribution of words in a topic. Default: 1 / topics.
        tolerance: training has converged when a pass betters the loss by a smaller share than this.
        seed: of the initial topics, drawn as scikit-learn draws them.

    >>> from relaqs.training import TopicModel
    >>> sql = "SELECT 9 * (x % 2) AS cat, 8 * (x % 2) AS dog, 9 - 9 * (x % 2) AS stock FROM numbers"
    >>> model = db.train(TopicModel(sql, topics=2)).result()
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
        check_topics(self)
        check_whole("seed", self.seed, least=0)
        check_not_negative("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> WholeParameters:
        return WholeParameters(self.descent(profile))

    def descent(self, profile: Profile) -> TopicDescent:
        """Return how the topics begin, change and are judged, in shards or not."""
        check_words(profile)
        word_count = float(profile.mean.sum()) * profile.row_count
        shape = len(profile.names), self.topics
        return TopicDescent(shape, self.seed, prior_of(self, self.topic_prior), word_count, self.tolerance)

    def partial(self, model: FloatArray, rows: Rows) -> Sums:
        """Return the expected counts of words by topic, shape (words, topics), and the documents' bound."""
        bound, counts = document_sums(rows.features, model, prior_of(self, self.document_prior))
        return np.ascontiguousarray((np.exp(expected_logs(model)) * counts).T), np.asarray(bound)

    def estimator(
        self, profile: Profile, model: FloatArray
    ) -> sklearn.decomposition.LatentDirichletAllocation:
        return topic_estimator(self, profile, model)


@dataclass(frozen=True, slots=True)
class TopicDescent:
    """Topics that follow the expected counts of their words. The parameters have a row for each word.

    Attributes:
        shape: how many words and topics there are.
        seed: of the first topics.
        prior: of the Dirichlet distribution of words in a topic.
        word_count: of all documents.
        tolerance: the relative change of the loss under which the topics have converged.
    """

    shape: tuple[int, int]
    seed: int
    prior: float
    word_count: float
    tolerance: float

    def first(self, rows: slice) -> ShardState:
        words, topics = self.shape
        return (np.ascontiguousarray(drawn_topics(topics, words, self.seed).T[rows]),)

    def model(self, values: FloatArray) -> FloatArray:
        """Return the weights of words in topics, shape (topics, words)."""
        return np.ascontiguousarray(values.T)

    def penalty(self, values: FloatArray) -> float:
        return -_dirichlet_bound(self.prior, self.model(values)) / self.word_count

    def update(
        self, state: ShardState, gradient: FloatArray, pace: tuple[float, ...], rows: slice
    ) -> ShardState:
        return (self.prior + gradient,)

    def begin(self) -> ShardCourse:
        return ShardCourse(0, ())

    def judge(self, course: ShardCourse, totals: Sums, penalty: float) -> ShardCourse:
        loss = penalty - float(totals[0]) / self.word_count
        is_final = course.loss - loss <= self.tolerance * abs(loss)
        return ShardCourse(course.step + 1, (), loss, is_final)


def first_topics(profile: Profile, topics: int, seed: int) -> FloatArray:
    """Return the topics before training, shape (topics, words). Raises DataError for no words."""
    check_words(profile)
    return drawn_topics(topics, len(profile.names), seed)


def check_words(profile: Profile) -> None:
    """Raise DataError where the documents hold no words."""
    if not profile.mean.sum() > 0:
        raise DataError("the documents hold no words; a topic model's columns are counts of words")


def drawn_topics(topics: int, words: int, seed: int) -> FloatArray:
    """Return topics drawn as scikit-learn draws them, shape (topics, words)."""
    return np.random.RandomState(seed).gamma(100.0, 0.01, (topics, words))


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
    job: TopicModel | OnlineTopics, profile: Profile, topics: FloatArray, **how: Any
) -> sklearn.decomposition.LatentDirichletAllocation:
    """Return scikit-learn's estimator with the topics. how: its arguments that not all jobs have."""
    from sklearn.decomposition import LatentDirichletAllocation

    estimator = LatentDirichletAllocation(
        job.topics,
        doc_topic_prior=job.document_prior,
        topic_word_prior=job.topic_prior,
        random_state=job.seed,
        **how,
    )
    return fitted(
        estimator,
        profile.names,
        components_=topics,
        exp_dirichlet_component_=np.exp(expected_logs(topics)),
        doc_topic_prior_=prior_of(job, job.document_prior),
        topic_word_prior_=prior_of(job, job.topic_prior),
    )


def prior_of(job: TopicModel | OnlineTopics, prior: float | None) -> float:
    """Return a prior as it is used, by default 1 / topics."""
    return 1 / job.topics if prior is None else prior


def check_topics(job: TopicModel | OnlineTopics) -> None:
    """Raise ArgumentError where the topics or a prior are not accepted."""
    require("sklearn")
    check_whole("topics", job.topics)
    for name in ("document_prior", "topic_prior"):
        if getattr(job, name) is not None:
            check_positive(name, getattr(job, name))


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

    >>> from relaqs.training import OnlineTopics
    >>> sql = "SELECT 9 * (x % 2) AS cat, 8 * (x % 2) AS dog, 9 - 9 * (x % 2) AS stock FROM numbers"
    >>> model = db.train(OnlineTopics(sql, topics=2, passes_most=3)).result()
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
        check_topics(self)
        check_positive("offset", self.offset)
        check_not_negative("decay", self.decay)

    def begin(self, profile: Profile) -> Topics:
        return Topics(first_topics(profile, self.topics, self.seed), profile.row_count)

    def rate(self, progress: float) -> float:
        return float((self.offset + progress + 1.0) ** -self.decay)

    def partial(self, state: Topics, rows: Rows, draw: int) -> Sums:
        """Return the documents' loss, and the expected counts by topic, but for a factor."""
        bound, counts = document_sums(rows.features, state.words, prior_of(self, self.document_prior))
        return np.asarray(-bound), counts

    def gradients(self, sums: Sums) -> Sums:
        return ()

    def update(self, state: Topics, sums: Sums, rows: int, rate: float) -> Topics:
        share = min(rate, 1.0)
        counts = np.exp(expected_logs(state.words)) * sums[1]
        wanted = prior_of(self, self.topic_prior) + (state.documents / rows) * counts
        return Topics((1.0 - share) * state.words + share * wanted, state.documents)

    def evaluate(self, state: Topics, rows: Rows) -> Sums:
        bound, _ = document_sums(rows.features, state.words, prior_of(self, self.document_prior))
        return (np.asarray(-bound),)

    def estimator(self, profile: Profile, state: Topics) -> sklearn.decomposition.LatentDirichletAllocation:
        how = {"learning_offset": self.offset, "learning_decay": self.decay}
        return topic_estimator(self, profile, state.words, learning_method="online", **how)
