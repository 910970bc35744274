"""Records pairs.json: rows of texts and of text pairs, cut to several lengths by Transformers. Usage: make_pairs.py"""
import json
import pathlib

import tokenizers
import transformers

HERE = pathlib.Path(__file__).parent
TEXTS = [
    ("A small library.", None),
    ("", None),
    ("A small library to read files of many kinds.", None),
    ("Who wrote it?", "The library was written by many people."),
    ("The library was written by many people.", "Who wrote it?"),
    ("One two three four", "Five six seven eight nine"),
    ("Nothing follows", ""),
]
LENGTHS = [7, 10, 64]


def post_processors(tokenizer) -> dict:
    """Returns the tokenizer's own post_processor and others to use instead, whose special tokens are ids 1 and 2."""
    own = json.loads(tokenizer.backend_tokenizer.to_str())["post_processor"]
    token = tokenizer.convert_ids_to_tokens
    a, b = token(1), token(2)
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                         {"SpecialToken": {"id": "x", "type_id": 1}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"x": {"id": "x", "ids": [1, 2], "tokens": [a, b]}}}
    return {"own": own,
            "bert": {"type": "BertProcessing", "sep": [b, 2], "cls": [a, 1]},
            "roberta": {"type": "RobertaProcessing", "sep": [b, 2], "cls": [a, 1], "trim_offsets": True, "add_prefix_space": False},
            "template": template}


def main() -> None:
    cases = []
    for name in ("bert", "llama3", "gpt2"):
        for kind in ("own", "bert", "roberta", "template"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(HERE / name)
            post = post_processors(tokenizer)[kind]
            config = json.loads(tokenizer.backend_tokenizer.to_str())
            config["post_processor"] = post
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(config)))
            rows = []
            for first, second in TEXTS:
                for length in LENGTHS:
                    # The second text is passed in a list, as when data sets are tokenised. As a plain string, an empty
                    # text would count as absent.
                    pair = None if second is None else [second]
                    out = tokenizer([first], pair, truncation=True, max_length=length, return_token_type_ids=True)
                    rows.append({"ids": out["input_ids"][0], "types": out["token_type_ids"][0]})
            cases.append({"tokenizer": name, "kind": kind, "post_processor": post if kind != "own" else None, "rows": rows})
    text = json.dumps({"texts": TEXTS, "lengths": LENGTHS, "cases": cases}, separators=(",", ":"))
    (HERE / "pairs.json").write_text(text.replace('{"tokenizer"', '\n{"tokenizer"') + "\n")


if __name__ == "__main__":
    main()
