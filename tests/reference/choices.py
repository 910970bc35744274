"""Records log-probabilities of choices after questions. The llama model computes them with and without its adapter.

usage: choices.py      (writes choices.json; README.md has the format)
"""

import random

import torch
from transformers import AutoTokenizer

import families
import record

FAMILY = "llama"
FOLDER = families.MODELS / FAMILY


def questions(tokenizer):
    """Returns random questions of one to six words, each with two to five choices of one to three words."""
    words = sorted(text for text in tokenizer.get_vocab() if text.isascii() and text.isalpha())
    draw = random.Random(11)
    text = lambda most: " ".join("".join(draw.sample(words, 2)) for _ in range(draw.randrange(1, most + 1)))
    out = []
    for _ in range(40):
        choices = [text(3) for _ in range(draw.randrange(2, 6))]
        out.append(dict(question=text(6), choices=choices, answer=draw.randrange(len(choices))))
    return out


def likelihoods(model, tokenizer, row):
    out = []
    for choice in row["choices"]:
        prompt = tokenizer(f"{row['question']}\nAnswer:")["input_ids"]
        whole = tokenizer(f"{row['question']}\nAnswer: {choice}")["input_ids"]
        if prompt != whole[: len(prompt)]:
            raise ValueError("a choice changes the tokens of its question")
        scores = record.logits(model, whole).log_softmax(-1)
        out.append(float(sum(scores[i - 1, whole[i]] for i in range(len(prompt), len(whole)))))
    return out


def main():
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    rows = questions(tokenizer)
    models = dict(base=families.load_model(FAMILY), tuned=record.load_adapter(FAMILY, FOLDER / "adapter_final"))
    for row in rows:
        for name, model in models.items():
            row[name] = likelihoods(model, tokenizer, row)
    accuracy = {}
    for name in models:
        best = lambda row, values: max(range(len(values)), key=values.__getitem__) == row["answer"]
        by_length = lambda row: [score / len(choice) for score, choice in zip(row[name], row["choices"])]
        accuracy[name] = dict(
            accuracy=100 * sum(best(row, row[name]) for row in rows) / len(rows),
            accuracy_norm=100 * sum(best(row, by_length(row)) for row in rows) / len(rows),
        )
    families.write_json(families.HERE / "choices.json", record.digits(dict(rows=rows, **accuracy)))
    print(accuracy)


if __name__ == "__main__":
    main()
