#!/usr/bin/env python3
"""Makes tokenizer.json of the example's base model: byte-level BPE of 4096 tokens, split as Llama 3 splits.

Usage: make_tokenizer.py PRETRAIN_JSONL FOLDER   (needs the `tokenizers` package; Fettle itself does not)
"""
import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 4096
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
SPECIAL = [BEGIN, END, "<|im_start|>", "<|im_end|>", "<|pad|>"]
# Contractions; a word with the character before it; up to three digits; signs; line ends; spaces.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main(rows, folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with open(rows, encoding="utf-8") as lines:
        tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    # At the end of the vocabulary, as in Llama 3.
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A {BEGIN}:1 $B:1",
        special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))],
    )
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(f"{folder}/tokenizer.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
