// Reads Parquet and Arrow files as rows. The program loads this module when it reads the first such file, so that the
// program itself does not need the Arrow library.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/float16.h>
#include <arrow/util/ree_util.h>
#include <parquet/arrow/reader.h>

#include <fstream>

#include "base/error.h"
#include "base/json_text.h"
#include "data/read/rows.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

void check(const arrow::Status& status, const std::string& file) {
  if (!status.ok())
    throw UserError("{}: the file is broken or cut off ({}); fetch or write it again", file, status.message());
}

template <typename T>
T value_of(arrow::Result<T> result, const std::string& file) {
  check(result.status(), file);
  return std::move(result).ValueUnsafe();
}

// Returns the bytes as a text. Bytes that are not UTF-8 (an image, for example) become null, because rows are JSON.
ordered_json text_or_null(std::string_view bytes) {
  try {
    const ordered_json text = std::string(bytes);
    text.dump();
    return text;
  } catch (const nlohmann::json::type_error&) {
    return nullptr;
  }
}

// Returns the bytes as a text, or an object that says that there are bytes, such as those of an image.
ordered_json text_or_bytes(std::string_view bytes) {
  ordered_json text = text_or_null(bytes);
  return text.is_null() ? ordered_json{{"bytes", nullptr}} : text;
}

// The row that a value becomes a part of.
struct Place {
  const std::string& file;
  const std::string& column;
  Row& row;
  int64_t structs = 0;  // structs around the value
};

ordered_json to_json(const arrow::Array& array, int64_t i, const Place& place);

template <typename List>
ordered_json list_to_json(const List& list, int64_t i, const Place& place) {
  ordered_json out = ordered_json::array();
  for (int64_t at = list.value_offset(i); at < list.value_offset(i) + list.value_length(i); ++at)
    out.push_back(to_json(*list.values(), at, place));
  return out;
}

ordered_json struct_to_json(const arrow::StructArray& fields, int64_t i, const Place& place) {
  ordered_json out = ordered_json::object();
  const Place inside{place.file, place.column, place.row, place.structs + 1};
  for (int f = 0; f < fields.num_fields(); ++f) {
    ordered_json value = to_json(*fields.field(f), i, inside);
    // The struct type has the fields of all rows. A field that this row lacks is null.
    if (!value.is_null()) out[fields.struct_type()->field(f)->name()] = std::move(value);
  }
  if (place.structs > 0) return out;
  // The text of a message stays null, so that a message without a text is treated as in JSON files. Structs inside a
  // message, such as a call's arguments, are no messages.
  const auto has_text = [&](const char* name) { return out.contains(name) && out[name].is_string(); };
  for (const auto& [role, text] : {std::pair{"role", "content"}, {"from", "value"}})
    if (has_text(role) && !out.contains(text) && fields.struct_type()->GetFieldIndex(text) >= 0) out[text] = nullptr;
  return out;
}

ordered_json map_to_json(const arrow::MapArray& map, int64_t i, const Place& place) {
  ordered_json out = ordered_json::object();
  for (int64_t at = map.value_offset(i); at < map.value_offset(i) + map.value_length(i); ++at) {
    const ordered_json key = to_json(*map.keys(), at, place);
    out[key.is_string() ? key.get<std::string>() : key.dump()] = to_json(*map.items(), at, place);
  }
  return out;
}

// Returns the value of an extension type. The type arrow.json has JSON as text: the datasets library stores objects
// with different fields so. A text that is not JSON stays a text.
ordered_json extension_to_json(const arrow::ExtensionArray& array, int64_t i, const Place& place) {
  ordered_json value = to_json(*array.storage(), i, place);
  const auto& type = static_cast<const arrow::ExtensionType&>(*array.type());
  if (type.extension_name() != "arrow.json" || !value.is_string()) return value;
  const auto text = value.get<std::string>();
  ordered_json read = parse_json_or_discard<ordered_json>(text);
  if (read.is_discarded()) return value;
  for (std::string& integer : large_integers(text)) place.row.large_integers.push_back(std::move(integer));
  return read;
}

ordered_json run_to_json(const arrow::RunEndEncodedArray& runs, int64_t i, const Place& place) {
  const int64_t at = arrow::ree_util::FindPhysicalIndex(arrow::ArraySpan(*runs.data()), i, runs.offset());
  return to_json(*runs.values(), at, place);
}

ordered_json to_json(const arrow::Array& array, int64_t i, const Place& place) {
  using arrow::Type;
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case Type::NA: return nullptr;
    case Type::BOOL: return static_cast<const arrow::BooleanArray&>(array).Value(i);
    case Type::INT8: return static_cast<const arrow::Int8Array&>(array).Value(i);
    case Type::INT16: return static_cast<const arrow::Int16Array&>(array).Value(i);
    case Type::INT32: return static_cast<const arrow::Int32Array&>(array).Value(i);
    case Type::INT64: return static_cast<const arrow::Int64Array&>(array).Value(i);
    case Type::UINT8: return static_cast<const arrow::UInt8Array&>(array).Value(i);
    case Type::UINT16: return static_cast<const arrow::UInt16Array&>(array).Value(i);
    case Type::UINT32: return static_cast<const arrow::UInt32Array&>(array).Value(i);
    case Type::UINT64: return static_cast<const arrow::UInt64Array&>(array).Value(i);
    case Type::HALF_FLOAT:
      return arrow::util::Float16::FromBits(static_cast<const arrow::HalfFloatArray&>(array).Value(i)).ToFloat();
    case Type::FLOAT: return static_cast<const arrow::FloatArray&>(array).Value(i);
    case Type::DOUBLE: return static_cast<const arrow::DoubleArray&>(array).Value(i);
    case Type::STRING: return text_or_null(static_cast<const arrow::StringArray&>(array).GetView(i));
    case Type::LARGE_STRING: return text_or_null(static_cast<const arrow::LargeStringArray&>(array).GetView(i));
    case Type::STRING_VIEW: return text_or_null(static_cast<const arrow::StringViewArray&>(array).GetView(i));
    case Type::BINARY: return text_or_bytes(static_cast<const arrow::BinaryArray&>(array).GetView(i));
    case Type::LARGE_BINARY: return text_or_bytes(static_cast<const arrow::LargeBinaryArray&>(array).GetView(i));
    case Type::BINARY_VIEW: return text_or_bytes(static_cast<const arrow::BinaryViewArray&>(array).GetView(i));
    case Type::FIXED_SIZE_BINARY:
      return text_or_bytes(static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i));
    case Type::LIST: return list_to_json(static_cast<const arrow::ListArray&>(array), i, place);
    case Type::LARGE_LIST: return list_to_json(static_cast<const arrow::LargeListArray&>(array), i, place);
    case Type::FIXED_SIZE_LIST: return list_to_json(static_cast<const arrow::FixedSizeListArray&>(array), i, place);
    case Type::LIST_VIEW: return list_to_json(static_cast<const arrow::ListViewArray&>(array), i, place);
    case Type::LARGE_LIST_VIEW: return list_to_json(static_cast<const arrow::LargeListViewArray&>(array), i, place);
    case Type::STRUCT: return struct_to_json(static_cast<const arrow::StructArray&>(array), i, place);
    case Type::MAP: return map_to_json(static_cast<const arrow::MapArray&>(array), i, place);
    case Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return to_json(*words.dictionary(), words.GetValueIndex(i), place);
    }
    case Type::RUN_END_ENCODED: return run_to_json(static_cast<const arrow::RunEndEncodedArray&>(array), i, place);
    case Type::EXTENSION: return extension_to_json(static_cast<const arrow::ExtensionArray&>(array), i, place);
    case Type::DATE32:
    case Type::DATE64:
    case Type::TIMESTAMP:
    case Type::TIME32:
    case Type::TIME64:
    case Type::DURATION:
    case Type::INTERVAL_MONTHS:
    case Type::INTERVAL_DAY_TIME:
    case Type::INTERVAL_MONTH_DAY_NANO:
    case Type::DECIMAL32:
    case Type::DECIMAL64:
    case Type::DECIMAL128:
    case Type::DECIMAL256: {
      const auto scalar = array.GetScalar(i);  // becomes text, as Arrow prints it
      return scalar.ok() ? text_or_null((*scalar)->ToString()) : ordered_json(nullptr);
    }
    default:
      throw UserError(
          "{}: the column '{}' has values of Arrow's type {}, which cannot be read; write them as texts, numbers, "
          "lists or structs, or leave the column out",
          place.file, place.column, array.type()->ToString());
  }
}

// A function that returns the next batch of a Parquet file. `batches` reads from `file`, so `file` is declared first
// and destroyed last.
struct ParquetBatches {
  std::string name;
  std::shared_ptr<parquet::arrow::FileReader> file;
  std::shared_ptr<arrow::RecordBatchReader> batches;

  std::shared_ptr<arrow::RecordBatch> operator()() const { return value_of(batches->Next(), name); }
};

// Returns a function that returns the file's batches one after another, then null. Only one batch is in memory at a
// time.
std::function<std::shared_ptr<arrow::RecordBatch>()> batches_of(const std::string& file) {
  char magic[6] = {};
  std::ifstream(file, std::ios::binary).read(magic, sizeof magic);
  const std::string_view begin(magic, sizeof magic);
  if (begin.starts_with("\x1f\x8b") || begin.starts_with("\x28\xb5\x2f\xfd"))
    throw UserError("{}: a compressed Parquet or Arrow file cannot be read; unpack it first (gunzip, unzstd)", file);
  auto input = value_of(arrow::io::ReadableFile::Open(file), file);
  if (begin.starts_with("PAR1")) {
    parquet::ReaderProperties pages;
    pages.enable_buffered_stream();
    parquet::ArrowReaderProperties rows;
    rows.set_pre_buffer(false);
    rows.set_batch_size(1024);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(input, pages), file);
    std::unique_ptr<parquet::arrow::FileReader> parquet;
    check(builder.properties(rows)->Build(&parquet), file);
    std::shared_ptr<arrow::RecordBatchReader> batches = value_of(parquet->GetRecordBatchReader(), file);
    return ParquetBatches{file, std::move(parquet), std::move(batches)};
  }
  if (begin == "ARROW1") {
    auto reader = value_of(arrow::ipc::RecordBatchFileReader::Open(input), file);
    return [file, reader, i = 0]() mutable -> std::shared_ptr<arrow::RecordBatch> {
      return i == reader->num_record_batches() ? nullptr : value_of(reader->ReadRecordBatch(i++), file);
    };
  }
  if (file.ends_with(".parquet"))
    throw UserError(
        "{} is not a Parquet file: it does not begin with PAR1; rename it with the ending of its format, or fetch it "
        "again",
        file);
  auto opened = arrow::ipc::RecordBatchStreamReader::Open(input);
  if (!opened.ok())
    throw UserError("{} is not an Arrow file ({}); rename it with the ending of its format, or fetch it again", file,
                    opened.status().message());
  auto batches = std::move(opened).ValueUnsafe();
  return [file, batches] { return value_of(batches->Next(), file); };
}

}  // namespace

// rows.cpp looks this function up by name after it has loaded the module.
extern "C" void fettle_read_columns(const std::string& file, const std::function<bool(Row)>& take) {
  const auto next = batches_of(file);
  int64_t number = 0;
  while (const std::shared_ptr<arrow::RecordBatch> batch = next()) {
    check(batch->ValidateFull(), file);
    for (int64_t i = 0; i < batch->num_rows(); ++i) {
      Row row{.line = ++number, .value = ordered_json::object()};
      for (int c = 0; c < batch->num_columns(); ++c) {
        const std::string& column = batch->column_name(c);
        row.value[column] = to_json(*batch->column(c), i, {file, column, row});
      }
      if (!take(std::move(row))) return;
    }
  }
}

}  // namespace fettle
