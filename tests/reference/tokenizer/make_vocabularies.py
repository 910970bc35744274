"""Records vocabularies.json: the ids that Transformers gives to texts if a model's folder has vocabulary files and no
tokenizer.json. The vocabularies are those of the other folders here. Usage: make_vocabularies.py
(needs Transformers, sentencepiece and protobuf)"""
import json
import pathlib
import shutil
import tempfile

import transformers

HERE = pathlib.Path(__file__).parent
CASES = [
    ("vocab.txt", {"model_type": "bert"}, None),
    ("vocab.txt", {"model_type": "bert"}, {"do_lower_case": False}),
    ("vocab.txt", {"model_type": "bert"}, {"strip_accents": False, "tokenize_chinese_chars": False}),
    ("tokenizer.json", {"model_type": "bert"}, {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
    ("tokenizer.json", {"model_type": "bert"}, {"do_lower_case": True, "strip_accents": False}),
    ("vocab.txt", {"model_type": "bert"}, {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False}),
    ("vocab.txt", {"model_type": "bert"}, {"tokenizer_class": "MobileBertTokenizer", "strip_accents": False}),
    ("tokenizer.json", {"model_type": "bert"}, {"tokenizer_class": "ElectraTokenizerFast", "do_lower_case": False}),
    ("merges.txt", {"model_type": "roberta"}, None),
    ("merges.txt", {"model_type": "roberta"}, {"add_prefix_space": True}),
    ("merges.txt", {"model_type": "gpt2"}, None),
    ("merges.txt", {"model_type": "gpt2"}, {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}),
    ("sentencepiece.bpe.model", {"model_type": "xlm-roberta"}, None),
]


def write_files(folder: pathlib.Path, kind: str) -> None:
    if kind == "tokenizer.json":
        content = json.loads((HERE / "bert" / kind).read_text())
        content["model"]["max_input_chars_per_word"] = 100  # Transformers always uses this number
        (folder / kind).write_text(json.dumps(content))
    if kind == "vocab.txt":
        vocab = json.loads((HERE / "bert" / "tokenizer.json").read_text())["model"]["vocab"]
        (folder / kind).write_text("".join(token + "\n" for token in sorted(vocab, key=vocab.get)))
    if kind == "merges.txt":
        model = json.loads((HERE / "gpt2" / "tokenizer.json").read_text())["model"]
        vocab = model["vocab"]
        for token in ("<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"):
            vocab[token] = len(vocab)
        (folder / "vocab.json").write_text(json.dumps(vocab))
        (folder / kind).write_text("#version: 0.2\n" + "".join(merge + "\n" for merge in model["merges"]))
    if kind == "sentencepiece.bpe.model":
        shutil.copy(HERE / "sp_unigram" / "tokenizer.model", folder / kind)


def main() -> None:
    # Transformers finds the control and user-defined symbols of sp_unigram in a text, which real models lack.
    symbols = ("<user>", "[X]", "<ctl>")
    lines = [line for line in json.loads((HERE / "lines.json").read_text())[::5]
             if not any(symbol in line for symbol in symbols)]
    cases = []
    for kind, config, tokenizer_config in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_files(folder, kind)
            (folder / "config.json").write_text(json.dumps(config))
            if tokenizer_config is not None:
                (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            pair = tokenizer(["Who wrote it?"], ["Many people."], return_token_type_ids=True)
            cases.append({
                "files": kind, "config": config, "tokenizer_config": tokenizer_config,
                "size": len(tokenizer), "pair": [pair["input_ids"][0], pair["token_type_ids"][0]],
                "named": [tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token],
                "ids": [tokenizer(line)["input_ids"] for line in lines]})
    text = json.dumps({"lines": lines, "cases": cases}, ensure_ascii=False, separators=(",", ":"))
    (HERE / "vocabularies.json").write_text(text.replace('{"files"', '\n{"files"') + "\n")


if __name__ == "__main__":
    main()
