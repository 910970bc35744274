"""Writes rows.parquet, rows.arrow (stream) and rows.feather (file format) to this folder with pyarrow, and the same
rows as rows.jsonl for comparison. Also writes images.parquet and image_bytes.parquet."""

import json
import pathlib

import pyarrow
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

here = pathlib.Path(__file__).parent
rows = []
for i in range(7):
    messages = [{"role": "user", "content": f"question {i} é 🎉"}, {"role": "assistant", "content": "answer " * (i + 1)}]
    if i % 3 == 0:
        messages.insert(0, {"role": "system", "content": "Be brief."})
    if i == 5:
        messages[-1]["weight"] = 0
        messages += [{"role": "user", "content": "again"}, {"role": "assistant", "content": "once more"}]
    rows.append({"id": i, "score": i / 4, "good": i % 2 == 0, "tags": ["a"] * (i % 3), "messages": messages})
table = pyarrow.Table.from_pylist(rows)
table = table.set_column(0, "id", table["id"].cast(pyarrow.int32()))
kind = pyarrow.array(["x", "y", "x", None, "y", "x", "x"]).dictionary_encode()
table = table.append_column("kind", kind)
pyarrow.parquet.write_table(table, here / "rows.parquet", row_group_size=3, compression="zstd")
with pyarrow.ipc.new_stream(here / "rows.arrow", table.schema) as writer:
    writer.write_table(table, max_chunksize=2)
pyarrow.feather.write_feather(table, here / "rows.feather", compression="lz4")
lines = []
for row in table.to_pylist():
    row["messages"] = [{k: v for k, v in message.items() if v is not None} for message in row["messages"]]
    lines.append(json.dumps(row, ensure_ascii=False))
(here / "rows.jsonl").write_text("\n".join(lines) + "\n")

# The first row has an image in the form of Hugging Face's datasets, or a list with the bytes of an image.
image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
images = pyarrow.array([{"bytes": b"\x89PNG\xff", "path": None}, None], image)
pyarrow.parquet.write_table(
    pyarrow.table({"prompt": ["q", "r"], "completion": ["a", "b"], "image": images}), here / "images.parquet"
)
images = pyarrow.array([[b"\x89PNG\xff"], []], pyarrow.list_(pyarrow.binary()))
pyarrow.parquet.write_table(
    pyarrow.table({"prompt": ["q", "r"], "completion": ["a", "b"], "images": images}), here / "image_bytes.parquet"
)
