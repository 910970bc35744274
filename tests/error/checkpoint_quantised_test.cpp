// Tests checkpoints in bitsandbytes' formats whose tensors do not fit their config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "models/model.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;
const std::string kWeight = "model.layers.1.mlp.up_proj.weight";

class QuantisedCheckpoint : public testing::Test {
 protected:
  // Copies the model with tensor `name` changed and returns the error of checking the copy. `change` edits the tensor's
  // shape and bytes; if it returns false, the copy does not have the tensor.
  std::string changed(const std::string& name, const std::function<bool(Shape&, Bytes&)>& change,
                      const std::string& format = "nf4") {
    const std::filesystem::path from = source_folder() / "tests/reference/models/llama/quantised" / format;
    const ModelRepository repository = ModelRepository::open(from);
    NamedShapes shapes;
    std::map<std::string, Bytes> values;
    for (const std::string& one : repository.names()) {
      const StoredTensor stored = repository.find(one);
      Shape shape = stored.entry->shape;
      Bytes copy;
      stored.file->with_bytes(*stored.entry, [&](auto bytes) { copy.assign(bytes.begin(), bytes.end()); });
      if (one == name && !change(shape, copy)) continue;
      shapes.emplace_back(one, shape);
      values[one] = std::move(copy);
    }
    TempFolder folder;
    ModelWriter writer(folder.path(), shapes, int64_t{1} << 30);
    for (const auto& [one, bytes] : values) writer.write(one, bytes);
    writer.finish();
    write_text(folder / "config.json", read_text(from / "config.json"));
    const ModelRepository broken = ModelRepository::open(folder.path());
    return user_error([&] { check_weights(broken, make_model(broken.config(), "config.json")); });
  }
  // Copies the model, and replaces the text `from` by `to` in the copy's quantisation settings. Returns the error of
  // checking the copy.
  std::string with_setting(const std::string& from, const std::string& to) {
    return changed(kWeight + ".quant_state.bitsandbytes__nf4", [&](Shape& shape, Bytes& bytes) {
      std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      text.replace(text.find(from), from.size(), to);
      const auto* data = reinterpret_cast<const std::byte*>(text.data());
      bytes.assign(data, data + text.size());
      shape.dims = {static_cast<int64_t>(text.size())};
      return true;
    });
  }
};

bool absent(Shape&, Bytes&) {
  return false;
}

TEST_F(QuantisedCheckpoint, DeeplyNestedSettingsDoNotCrash) {
  EXPECT_THAT(with_setting("{", std::string(2'000'000, '[')), testing::HasSubstr("is not a JSON object"));
}

TEST_F(QuantisedCheckpoint, UnchangedIsAccepted) {
  EXPECT_EQ(changed("", absent), "no error");
}

TEST_F(QuantisedCheckpoint, PartsAreMissing) {
  for (const char* part :
       {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".quant_state.bitsandbytes__nf4"})
    EXPECT_THAT(changed(kWeight + part, absent), HasSubstr(kWeight + part));
}

TEST_F(QuantisedCheckpoint, PartsOfAnotherShape) {
  auto shorter = [](Shape& shape, Bytes& bytes) {
    shape.dims = {static_cast<int64_t>(bytes.size() / 2) / byte_size(shape.dtype)};
    bytes.resize(bytes.size() / 2);
    return true;
  };
  for (const char* part : {"", ".absmax", ".quant_map"})
    EXPECT_THAT(changed(kWeight + part, shorter), AllOf(HasSubstr(kWeight + part), HasSubstr("wanted"))) << part;
}

TEST_F(QuantisedCheckpoint, OtherForms) {
  EXPECT_THAT(with_setting("\"nf4\"", "\"nf3\""), AllOf(HasSubstr("quant_type"), HasSubstr("nf3")));
  EXPECT_THAT(with_setting("\"blocksize\": 64", "\"blocksize\": 128"), HasSubstr("blocksize 128, wanted 64"));
  EXPECT_THAT(with_setting("\"nested_offset\"", "\"nested_upset\""), HasSubstr("nested_offset"));
  EXPECT_THAT(with_setting("{", "["), HasSubstr("not a JSON object"));
  const std::string map = changed(kWeight + ".quant_map", [](Shape&, Bytes& bytes) {
    bytes[3] = std::byte{0};
    return true;
  });
  EXPECT_THAT(map, AllOf(HasSubstr("quant_map"), HasSubstr("other maps are not supported")));
}

TEST_F(QuantisedCheckpoint, ExpertsThatOnlyUnslothReads) {
  TempFolder folder;
  const std::string name = "model.layers.0.mlp.experts.gate_up_projs.0.weight.quant_state.bitsandbytes__nf4";
  ModelWriter writer(folder.path(), {{name, {DType::kU8, {1}}}}, 1 << 20);
  writer.write(name, std::vector<std::byte>(1));
  writer.finish();
  write_text(folder / "config.json", read_text(source_folder() / "tests/reference/models/gpt_oss/config.json"));
  EXPECT_THAT(user_error([&] { ModelRepository::open(folder.path()); }),
              AllOf(HasSubstr("gate_up_projs.0.weight' is one of GPT-OSS's experts"), HasSubstr("openai/gpt-oss-20b")));
}

TEST_F(QuantisedCheckpoint, CodesInTilesOfAGpu) {
  const std::string format = "model.layers.1.mlp.up_proj.weight_format";
  auto tiled = [](Shape&, Bytes& bytes) {
    bytes[0] = std::byte{2};
    return true;
  };
  EXPECT_THAT(changed(format, tiled, "int8"), AllOf(HasSubstr(format), HasSubstr("is 2")));
  EXPECT_EQ(changed(format, absent, "int8"), "no error") << "the first versions wrote none";
}

}  // namespace
}  // namespace fettle
