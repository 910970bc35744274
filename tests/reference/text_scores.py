"""Records the ROUGE scores of rouge_score and the BLEU scores of sacrebleu for random texts and for chosen texts.

usage: text_scores.py      (writes text_scores.json; README.md has the format)
"""

import json
import pathlib
import random

import sacrebleu
from rouge_score import rouge_scorer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

CHOSEN = [
    ("The cat sat on the mat.", ["The cat is on the mat."]),
    ("the cat", ["The CAT sat, on the mat!", "a cat"]),
    ("", ["nothing was said"]),
    ("Prices rose 3.5% to $1,234.50 (a record).", ["Prices rose by 3.5 % to $1,234.50, a record."]),
    ("x", ["x"]),
    ("one two three four five", ["one two three four five"]),
    ("Größe über naïve façade – “quoted”", ["Grösse uber naïve facade - \"quoted\""]),
    ("A &quot;B&quot; &amp; C &lt;tag&gt;", ['A "B" & C <tag>']),
    ("well-known 1990-91 a-b 5-fold", ["well-known 1990-91 a-b 5-fold rise"]),
    ("line one\nline two-\nthree", ["line one line twothree"]),
    ("日本語のテキスト 123", ["日本語 テキスト 123"]),
    ("wait...what?,. ok.,3.,x", ["wait . what ? ok"]),
    ("tab\tand\u00a0space\u2003wide", ["tab and space wide"]),
    ("the the the the", ["the cat the dog"]),
]
WORDS = "the a cat dog sat ran on mat, 3.14 (big) U.S. end. it's x-ray 42-fold % &amp; Ünder".split()


def drawn(count, seed):
    draw = random.Random(seed)
    out = []
    for _ in range(count):
        text = draw.choices(WORDS, k=draw.randrange(1, 25))
        changed = [word for word in text if draw.random() > 0.2]
        references = [" ".join(text)] + [" ".join(draw.choices(WORDS, k=draw.randrange(1, 20)))] * draw.randrange(2)
        out.append((" ".join(changed), references))
    return out


def corpus(rows):
    most = max(len(references) for _, references in rows)
    streams = [[references[min(i, len(references) - 1)] for _, references in rows] for i in range(most)]
    return sacrebleu.corpus_bleu([reply for reply, _ in rows], streams).score


def main():
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    rows = CHOSEN + drawn(40, 7)
    out = dict(versions=dict(sacrebleu=sacrebleu.__version__, rouge_score="0.1.2"), rows=[], corpora=[])
    for reply, references in rows:
        scores = scorer.score_multi(references, reply)
        out["rows"].append(
            dict(reply=reply, references=references, tokens=Tokenizer13a()(reply).split(), bleu=corpus([(reply, references)]),
                 **{name: score.fmeasure for name, score in scores.items()})
        )  # fmt: skip
    for first, last in ((0, 54), (0, 14), (14, 54), (20, 23)):
        out["corpora"].append(dict(first=first, last=last, bleu=corpus(rows[first:last])))
    path = pathlib.Path(__file__).parent / "text_scores.json"
    path.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
