// Tests exports that are refused: the message is right, and no files are left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "base/interrupt.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/repository.h"
#include "config/recipe.h"
#include "export/export.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;
const fs::path kModels = source_folder() / "tests/reference/models";

Recipe merge_recipe(const fs::path& model, const fs::path& adapter, const fs::path& to) {
  Recipe recipe;
  recipe.model_name_or_path = model.string();
  if (!adapter.empty()) recipe.adapter_name_or_path = {adapter.string()};
  recipe.export_dir = to.string();
  recipe.plugin = "cpu";
  return recipe;
}

// Copies llama's final adapter with lora_B multiplied by `factor`.
void scaled_adapter(const fs::path& to, float factor) {
  fs::create_directories(to);
  const AdapterFolder adapter = read_adapter(kModels / "llama/adapter_final");
  NamedShapes shapes;
  for (const AdapterTensor& tensor : adapter.tensors) shapes.emplace_back(tensor.entry->name, tensor.entry->shape);
  SafetensorsWriter writer = begin_adapter(to, adapter.config, shapes);
  for (const AdapterTensor& tensor : adapter.tensors) {
    HostArray values = adapter.file.read(*tensor.entry);
    if (tensor.part == AdapterPart::kLoraB)
      for (float& value : values.as<float>()) value *= factor;
    writer.write(tensor.entry->name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
}

class ExportError : public testing::Test {
 protected:
  // Returns the message of the refused export. Checks that neither the output folder nor a temporary folder is left.
  std::string refused(const Recipe& recipe) {
    const std::string message = user_error([&] { run_export(Request(recipe, Command::kExport)); });
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::StartsWith("out")));
    return message;
  }
  TempFolder folder_;
};

TEST_F(ExportError, KeysAreNeeded) {
  EXPECT_THAT(user_error([] { run_export(Request(Recipe(), Command::kExport)); }),
              AllOf(HasSubstr("model_name_or_path"), HasSubstr("export_dir")));
}

TEST_F(ExportError, AnAdapterOfZeros) {
  scaled_adapter(folder_ / "zero", 0);
  EXPECT_THAT(refused(merge_recipe(kModels / "llama", folder_ / "zero", folder_ / "out")),
              AllOf(HasSubstr("zero/adapter_model.safetensors"), HasSubstr("nothing to merge")));
  EXPECT_THAT(refused(merge_recipe(kModels / "llama", kModels / "llama/adapter_init", folder_ / "out")),
              HasSubstr("nothing to merge"));
}

TEST_F(ExportError, AnAdapterLostInRounding) {
  Recipe low = merge_recipe(kModels / "llama", {}, folder_ / "base");
  low.export_dtype = "bfloat16";
  run_export(Request(low, Command::kExport));
  scaled_adapter(folder_ / "weak", 1e-3f);
  EXPECT_THAT(refused(merge_recipe(folder_ / "base", folder_ / "weak", folder_ / "out")),
              AllOf(HasSubstr("bfloat16"), HasSubstr("export_dtype: float32")));
  scaled_adapter(folder_ / "weaker", 1e-7f);
  EXPECT_THAT(refused(merge_recipe(folder_ / "base", folder_ / "weaker", folder_ / "out")),
              AllOf(HasSubstr("removes every change"), HasSubstr("export_dtype: float32")));
  Recipe full = merge_recipe(folder_ / "base", folder_ / "weak", folder_ / "full");
  full.export_dtype = "float32";
  EXPECT_NEAR(run_export(Request(full, Command::kExport)).logits->kept, 1, 1e-2);
}

TEST_F(ExportError, AnAdapterThatIsNotFinite) {
  scaled_adapter(folder_ / "nan", NAN);
  EXPECT_THAT(refused(merge_recipe(kModels / "llama", folder_ / "nan", folder_ / "out")), HasSubstr("not finite"));
}

// Copies llama with `value` as the first value of a norm.
void model_with(const fs::path& to, float value) {
  write_text(to / "config.json", read_text(kModels / "llama/config.json"));
  const ModelRepository from = ModelRepository::open(kModels / "llama");
  NamedShapes shapes;
  for (const std::string& name : from.names()) shapes.emplace_back(name, from.find(name).entry->shape);
  ModelWriter writer(to, shapes, int64_t{1} << 30);
  for (const std::string& name : from.names()) {
    HostArray array = from.find(name).file->read(*from.find(name).entry);
    if (name == "model.norm.weight") array.as<float>()[0] = value;
    writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
  }
  writer.finish();
}

TEST_F(ExportError, AValueThatTheDtypeCannotRepresent) {
  model_with(folder_ / "large", -1e5f);
  Recipe recipe = merge_recipe(folder_ / "large", {}, folder_ / "out");
  recipe.export_dtype = "float16";
  EXPECT_THAT(refused(recipe), AllOf(HasSubstr("model.norm.weight"), HasSubstr("-100000"), HasSubstr("float16"),
                                     HasSubstr("bfloat16 or float32")));
  recipe.export_dtype = "bfloat16";
  EXPECT_EQ(run_export(Request(recipe, Command::kExport)).files, 1u);
  fs::remove_all(folder_ / "out");
  model_with(folder_ / "larger", 3.4e38f);
  recipe.model_name_or_path = (folder_ / "larger").string();
  EXPECT_THAT(refused(recipe), AllOf(HasSubstr("model.norm.weight"), HasSubstr("export_dtype: float32")));
  // Values that are already infinite stay infinite.
  model_with(folder_ / "infinite", INFINITY);
  recipe.model_name_or_path = (folder_ / "infinite").string();
  recipe.export_dtype = "float16";
  EXPECT_EQ(run_export(Request(recipe, Command::kExport)).files, 1u);
}

TEST_F(ExportError, AMergeThatTheDtypeCannotRepresent) {
  Recipe low = merge_recipe(kModels / "llama", {}, folder_ / "base");
  low.export_dtype = "float16";
  run_export(Request(low, Command::kExport));
  scaled_adapter(folder_ / "strong", 1e8f);
  EXPECT_THAT(refused(merge_recipe(folder_ / "base", folder_ / "strong", folder_ / "out")),
              AllOf(HasSubstr("_proj.weight"), HasSubstr("float16"), HasSubstr("bfloat16 or float32")));
}

// The adapter is valid, except that its classifier head has a wrong shape.
TEST_F(ExportError, AHeadThatIsNotAMatrix) {
  for (const Dims& dims : {Dims{}, Dims{2}, Dims{1000000000000, 0}, Dims{3, 5}}) {
    const AdapterFolder adapter = read_adapter(kModels / "llama/adapter_final");
    AdapterConfig config = adapter.config;
    config.task_type = "SEQ_CLS";
    config.modules_to_save = {"score"};
    NamedShapes shapes{{"base_model.model.score.weight", {DType::kF32, dims}}};
    for (const AdapterTensor& tensor : adapter.tensors) shapes.emplace_back(tensor.entry->name, tensor.entry->shape);
    fs::create_directories(folder_ / "head");
    SafetensorsWriter writer = begin_adapter(folder_ / "head", config, shapes);
    for (const auto& [name, shape] : shapes) {
      const HostArray zeros = HostArray::zeros(shape);
      writer.write(name, {zeros.data(), static_cast<size_t>(zeros.bytes())});
    }
    writer.finish();
    EXPECT_THAT(refused(merge_recipe(kModels / "llama", folder_ / "head", folder_ / "out")),
                AllOf(HasSubstr("score.weight"), HasSubstr("wanted [")))
        << to_string(dims);
  }
}

// PEFT's all-linear adds LoRA weights to the image encoder. Fettle accepts them only if they have no effect.
TEST_F(ExportError, TrainedLoraWeightsOfAnImageEncoder) {
  const AdapterFolder adapter = read_adapter(kModels / "gemma4_moe/variants/all_linear_final");
  fs::create_directories(folder_ / "tower");
  NamedShapes shapes;
  for (const AdapterTensor& tensor : adapter.tensors) shapes.emplace_back(tensor.entry->name, tensor.entry->shape);
  SafetensorsWriter writer = begin_adapter(folder_ / "tower", adapter.config, shapes);
  for (const AdapterTensor& tensor : adapter.tensors) {
    HostArray values = adapter.file.read(*tensor.entry);
    if (tensor.module == "model.embed_vision.embedding_projection") values.as<float>()[0] = 1;
    writer.write(tensor.entry->name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
  EXPECT_THAT(refused(merge_recipe(kModels / "gemma4_moe", folder_ / "tower", folder_ / "out")),
              AllOf(HasSubstr("'model.embed_vision.embedding_projection'"), HasSubstr("merge the adapter with PEFT")));
}

TEST_F(ExportError, AnotherModelsAdapter) {
  EXPECT_THAT(refused(merge_recipe(kModels / "llama", kModels / "gpt2/adapter_final", folder_ / "out")),
              HasSubstr("another model's adapter"));
  // The module names are the same, but the sizes differ.
  write_text(folder_ / "wide/config.json", read_text(kModels / "llama/config.json"));
  fs::copy_file(kModels / "llama/model.safetensors", folder_ / "wide/model.safetensors");
  fs::create_directories(folder_ / "narrow");
  const AdapterFolder adapter = read_adapter(kModels / "llama/adapter_final");
  NamedShapes shapes;
  for (const AdapterTensor& tensor : adapter.tensors) {
    Shape shape = tensor.entry->shape;
    if (tensor.part == AdapterPart::kLoraB) shape.dims[0] /= 2;
    shapes.emplace_back(tensor.entry->name, shape);
  }
  SafetensorsWriter writer = begin_adapter(folder_ / "narrow", adapter.config, shapes);
  for (const auto& [name, shape] : shapes) {
    const HostArray zeros = HostArray::zeros(shape);
    writer.write(name, {zeros.data(), static_cast<size_t>(zeros.bytes())});
  }
  writer.finish();
  EXPECT_THAT(refused(merge_recipe(folder_ / "wide", folder_ / "narrow", folder_ / "out")),
              AllOf(HasSubstr("the adapter belongs to another model"), HasSubstr("down_proj"), HasSubstr("[32, 96]")));
}

TEST_F(ExportError, AnAdapterGivenAsModel) {
  EXPECT_THAT(refused(merge_recipe(kModels / "llama/adapter_final", {}, folder_ / "out")), HasSubstr("is an adapter"));
}

TEST_F(ExportError, AFolderThatIsNotEmpty) {
  write_text(folder_ / "mine/notes.txt", "keep");
  EXPECT_THAT(
      user_error([&] { run_export(Request(merge_recipe(kModels / "llama", {}, folder_ / "mine"), Command::kExport)); }),
      HasSubstr("mine"));
  EXPECT_EQ(list_tree(folder_ / "mine"), std::vector<std::string>{"notes.txt"});
}

TEST_F(ExportError, AnUnknownDtype) {
  Recipe recipe = merge_recipe(kModels / "llama", {}, folder_ / "out");
  recipe.export_dtype = "float31";
  EXPECT_THAT(refused(recipe), HasSubstr("float31"));
}

TEST_F(ExportError, APlaceThatIsNotWritable) {
  EXPECT_THAT(refused(merge_recipe(kModels / "llama", {}, "/proc/out")), HasSubstr("/proc"));
}

// A limit on file sizes simulates a full disk.
TEST_F(ExportError, ADiskThatIsFull) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{50000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = refused(merge_recipe(kModels / "llama", {}, folder_ / "out"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("model.safetensors"));
}

TEST_F(ExportError, ASignalRemovesTheUnfinishedFolder) {
  const Recipe plain = merge_recipe(kModels / "llama", "", folder_ / "out");
  Recipe gguf = plain;
  gguf.export_gguf = {"q8_0"};
  for (const Recipe& recipe : {plain, gguf}) {
    const InterruptScope interrupts;
    std::raise(SIGTERM);
    int code = 0;
    try {
      refused(recipe);
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
      EXPECT_THAT(error.what(), HasSubstr("interrupted while exporting; nothing was exported"));
    }
    EXPECT_EQ(code, 128 + SIGTERM);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
}

}  // namespace
}  // namespace fettle
