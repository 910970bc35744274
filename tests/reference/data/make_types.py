"""Writes files with more types of columns to this folder, and the rows that Fettle should read from them:

- json.parquet and json.arrow, as Hugging Face's datasets stores objects with different fields (the type Json), and
  json.jsonl;
- types.arrow, which pyarrow writes with types that Parquet does not have, and types.jsonl;
- union.arrow, with a type that Fettle refuses.

Needs pyarrow 26 and datasets 5.2. A text that is null stays null in a message, and is left out in other structs.
"""

import decimal
import json
import pathlib
import shutil
import tempfile

import datasets
import pyarrow
import pyarrow.ipc

here = pathlib.Path(__file__).parent


def write_lines(name, rows):
    (here / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def tool(name, properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


rows = []
for i, properties in enumerate([{"city": {"type": "string"}}, {"x": {"type": "number"}, "y": {"enum": [1, None]}}]):
    call = {"type": "function", "function": {"name": f"f{i}", "arguments": {key: [i, "é"] for key in properties}}}
    messages = [
        {"role": "user", "content": f"question {i}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": None if i else "answer"},
    ]
    note = {"text": None if i else "a"}
    rows.append({"messages": messages, "tools": [tool(f"f{i}", properties)], "note": note})
table = datasets.Dataset.from_list(rows, on_mixed_types="use_json")
table.to_parquet(here / "json.parquet")
with tempfile.TemporaryDirectory() as folder:
    table.save_to_disk(folder)
    shutil.copy(next(pathlib.Path(folder).glob("data-*.arrow")), here / "json.arrow")
rows[1]["note"] = {}
write_lines("json.jsonl", rows)

numbers = [[1, 2], [], [3]]
message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string()), ("name", pyarrow.string())])
columns = {
    "view": pyarrow.array(numbers, pyarrow.list_view(pyarrow.int32())),
    "large_view": pyarrow.array(numbers, pyarrow.large_list_view(pyarrow.int64())),
    "runs": pyarrow.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    "half": pyarrow.array([0.5, 1.5, -2.0], pyarrow.float16()),
    "bytes": pyarrow.array([b"a", b"b", b"c"], pyarrow.large_binary()),
    "fixed": pyarrow.array([b"ab", b"cd", b"ef"], pyarrow.binary(2)),
    "flag": pyarrow.ExtensionArray.from_storage(pyarrow.bool8(), pyarrow.array([1, 0, 1], pyarrow.int8())),
    "price": pyarrow.array([decimal.Decimal("4.50")] * 3, pyarrow.decimal128(8, 2)),
    "message": pyarrow.array([{"role": "assistant", "content": None, "name": None}] * 3, message),
    "text": pyarrow.ExtensionArray.from_storage(pyarrow.json_(), pyarrow.array(["[1]", "{", None])),
}
table = pyarrow.table(columns)
with pyarrow.ipc.new_file(here / "types.arrow", table.schema) as writer:
    writer.write_table(table)
expected = []
for i in range(3):
    expected.append({
        "view": numbers[i], "large_view": numbers[i], "runs": "aab"[i], "half": [0.5, 1.5, -2.0][i],
        "bytes": "abc"[i], "fixed": ["ab", "cd", "ef"][i], "flag": [1, 0, 1][i], "price": "4.50",
        "message": {"role": "assistant", "content": None}, "text": [[1], "{", None][i],
    })
write_lines("types.jsonl", expected)

union = pyarrow.UnionArray.from_sparse(pyarrow.array([0], pyarrow.int8()), [pyarrow.array(["a"])])
table = pyarrow.table({"text": pyarrow.array(["a"]), "either": union})
with pyarrow.ipc.new_stream(here / "union.arrow", table.schema) as writer:
    writer.write_table(table)
