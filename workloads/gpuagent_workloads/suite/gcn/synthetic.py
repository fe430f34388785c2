"""A synthetic citation graph of Cora's shape and sparsity, with subjects that its words and citations reveal."""

import numpy as np
import numpy.typing as npt

from gpuagent_workloads.data.cora import CitationGraph

PAPERS, DICTIONARY, SUBJECTS = 2708, 1433, 7
# Pairs of papers of which one cites the other: Cora's 5,429 citations, without those that go both ways or repeat.
CITATIONS = 5278
# Words in all papers together.
WORDS = 49_216

# Of the citations, as in Cora.
_SAME_SUBJECT_SHARE = 0.81

# Of the dictionary, for each subject; they may be another subject's too.
_TOPICAL_WORDS = 200

# The advantage of topical words. At 0 the words are random; at this value they alone identify the subject of about
# three of four papers, as in Cora.
_TOPICAL_BONUS = 1.0


def make_graph(random: np.random.Generator) -> CitationGraph:
    """Return a graph with exactly Cora's numbers of papers, words, subjects and neighbours."""
    subjects = random.integers(0, SUBJECTS, PAPERS)
    return CitationGraph(words=_words(subjects, random), subjects=subjects, citations=_citations(subjects, random))


def _words(subjects: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Give each paper the words that score highest; the topical ones have an advantage."""
    topics = np.zeros((SUBJECTS, DICTIONARY))
    for topic in topics:
        topic[random.choice(DICTIONARY, _TOPICAL_WORDS, replace=False)] = _TOPICAL_BONUS
    # Adding Gumbel noise and taking the highest draws without replacement, with weights exp(bonus).
    scores = topics[subjects] + random.gumbel(size=(PAPERS, DICTIONARY))
    ranks = (-scores).argsort(axis=1).argsort(axis=1)
    at_least, one_more = divmod(WORDS, PAPERS)
    counts = at_least + (np.arange(PAPERS) < one_more)
    words: npt.NDArray[np.uint8] = (ranks < counts[:, np.newaxis]).astype(np.uint8)
    return words


def _citations(subjects: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw pairs of different papers, each pair once."""
    # Twice as many as are needed, since some papers pair with themselves and some pairs come twice.
    citing = random.integers(0, PAPERS, 2 * CITATIONS)
    cited = random.integers(0, PAPERS, 2 * CITATIONS)
    by_subject = [np.flatnonzero(subjects == subject) for subject in range(SUBJECTS)]
    same = random.random(2 * CITATIONS) < _SAME_SUBJECT_SHARE
    cited[same] = [random.choice(by_subject[subject]) for subject in subjects[citing[same]]]
    pairs = np.sort(np.column_stack([cited, citing]), axis=1)[cited != citing]
    _, first = np.unique(pairs, axis=0, return_index=True)
    unique: npt.NDArray[np.int64] = pairs[np.sort(first)[:CITATIONS]]
    return unique
