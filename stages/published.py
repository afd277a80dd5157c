"""Derive every printed figure from what its own document prints, and say how the two stand to each other.

The facts are an input; this stage computes and compares, and measures nothing. It is rejected when a figure is
contradicted: no value that its printed inputs may be rounded from gives it. What is not derivable is neither.
"""

from collections import Counter

from kassay.published import ANSWERS, CONTRADICTED
from kassay.published.figures import answered, load
from kassay.stage import Metrics, Rejection, Stage, main


def run(stage: Stage) -> Metrics | Rejection:
    """One answer a figure, in the order of the facts."""
    answers = [answered(figure) for figure in load(stage.inputs["figures"])]
    for answer in answers:
        stage.append(answer)
    counts = Counter(answer.answer for answer in answers)
    metrics: Metrics = {"figures": len(answers)} | {word: counts[word] for word in ANSWERS}
    contradicted = [answer for answer in answers if answer.answer == CONTRADICTED]
    if not contradicted:
        return metrics
    said = "; ".join(f"{one.figure}: printed {one.printed}, derived {one.derived}" for one in contradicted)
    return stage.rejected(f"contradicted: {said}", **metrics)


if __name__ == "__main__":
    main(run)
