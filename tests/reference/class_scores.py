"""Records the metrics that scikit-learn and SciPy compute for random labels and numbers.

usage: class_scores.py      (writes class_scores.json; README.md has the format)
"""

import json
import pathlib
import random

import numpy
from scipy import stats
from sklearn import metrics


def averages(truth, said, labels=None):
    out = {}
    for average in ("micro", "macro", "weighted"):
        scores = metrics.precision_recall_fscore_support(truth, said, average=average, zero_division=0)
        out[average] = {"precision": scores[0], "recall": scores[1], "f1": scores[2]}
    each = metrics.precision_recall_fscore_support(truth, said, labels=labels, zero_division=0)
    out["labels"] = [{"precision": p, "recall": r, "f1": f, "support": int(s)} for p, r, f, s in zip(*each)]
    out["accuracy"] = metrics.accuracy_score(truth, said)
    return out


def single(draw, rows, labels, met):
    truth = [draw.randrange(met) for _ in range(rows)]
    said = [t if draw.random() < 0.6 else draw.randrange(met) for t in truth]
    confusion = metrics.confusion_matrix(truth, said, labels=range(labels))
    return {"num_labels": labels, "truth": truth, "said": said, "confusion": confusion.flatten().tolist(),
            "scores": averages(truth, said, range(labels))}


def several(draw, rows, labels):
    truth = [[int(k < labels - 1 and draw.random() < 0.3) for k in range(labels)] for _ in range(rows)]
    said = [[t if draw.random() < 0.8 else 1 - t for t in row] for row in truth]
    return {"num_labels": labels, "truth": sum(truth, []), "said": sum(said, []), "scores": averages(truth, said)}


def numbers(draw, rows, each):
    truth = [[round(draw.uniform(0, 5), 1) for _ in range(each)] for _ in range(rows)]
    said = [[round(t + draw.gauss(0, 1), 1) for t in row] for row in truth]
    t, s = numpy.array(truth), numpy.array(said)
    return {"numbers": each, "truth": sum(truth, []), "said": sum(said, []), "mse": metrics.mean_squared_error(t, s),
            "mae": metrics.mean_absolute_error(t, s),
            "pearson": numpy.mean([stats.pearsonr(t[:, n], s[:, n])[0] for n in range(each)]),
            "spearman": numpy.mean([stats.spearmanr(t[:, n], s[:, n])[0] for n in range(each)])}


def main():
    draw = random.Random(7)
    out = {"single": [single(draw, 40, 3, 3), single(draw, 30, 6, 4), single(draw, 1, 2, 2)],
           "several": [several(draw, 25, 4)], "numbers": [numbers(draw, 30, 1), numbers(draw, 20, 3)]}
    names = ["admin", "libs", "x11"]
    first = out["single"][0]
    out["report"] = metrics.classification_report(first["truth"], first["said"], target_names=names, digits=3)
    (pathlib.Path(__file__).parent / "class_scores.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
