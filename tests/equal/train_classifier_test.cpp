// Tests that resuming, writing and exporting keep the trained classifier, for all names that checkpoints use for its
// weights.
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/model_writer.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "class_rows.h"
#include "export/export.h"
#include "temp_folder.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "train/checkpoints/checkpoint_writer.h"
#include "train/result.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

TEST(ClassifierFiles, AResumedRunWithAHeadContinuesBitForBit) {
  const TempFolder folder;
  Recipe recipe = class_recipe("bert", kSingle, "lora");
  recipe.output_dir = folder.path().string();
  ClassRun whole(recipe);
  whole.advance(2e-3);
  const Processes alone;
  CheckpointWriter(whole.run, whole.repository, {}, alone).save(whole.state, {});
  const std::filesystem::path written = checkpoint_path(recipe.output_dir, 1);
  StateReader from(state_folder(written));
  ClassRun resumed(recipe, &from);
  EXPECT_EQ(resumed.advance(2e-3).loss, whole.advance(2e-3).loss);
  for (const StateArray& array : trained_arrays(whole.run)) {
    const HostArray a = whole.state.buffers.at(array.name).download(),
                    b = resumed.state.buffers.at(array.name).download();
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << array.name;
  }
  const Json adapter = Json::parse(read_text(written / "adapter_config.json"));
  EXPECT_EQ(adapter["task_type"], "SEQ_CLS");
  EXPECT_EQ(adapter["modules_to_save"], Json({"classifier", "pooler"}));
}

// Exports a LoRA adapter of bert. The exported model is a complete classifier.
TEST(ClassifierFiles, AnAdapterMergedIsAClassifier) {
  const TempFolder folder;
  Recipe recipe = class_recipe("bert", kSingle, "lora");
  recipe.id2label = {"red", "green", "blue"};
  ClassRun run(recipe);
  for (int step = 0; step < 3; ++step) run.advance(5e-3);
  std::filesystem::create_directory(folder / "adapter");
  write_result(folder / "adapter", run.run, run.repository, run.state);
  Recipe merge = recipe;
  merge.id2label.clear();  // the adapter's folder has the labels
  merge.adapter_name_or_path = {(folder / "adapter").string()};
  merge.export_dir = (folder / "merged").string();
  const ExportReport report = run_export(Request(merge, Command::kExport));
  ASSERT_TRUE(report.logits);
  EXPECT_GT(report.logits->difference_from_base, 1e-3);
  const Json config = Json::parse(read_text(folder / "merged/config.json"));
  EXPECT_EQ(config["architectures"], Json({"BertForSequenceClassification"}));
  EXPECT_EQ(config["id2label"], (Json{{"0", "red"}, {"1", "green"}, {"2", "blue"}}));
  EXPECT_EQ(config["label2id"]["blue"], 2);
  EXPECT_EQ(config["problem_type"], kSingle);

  Recipe merged = class_recipe("bert", kSingle, "full");
  merged.model_name_or_path = merge.export_dir;
  const Batch batch = class_batch(kSingle, 0, 1, 6);
  const Value got = ClassRun(merged).evaluate(batch).at("logits"), wanted = run.evaluate(batch).at("logits");
  for (size_t i = 0; i < wanted.elements.size(); ++i) EXPECT_NEAR(got.elements[i], wanted.elements[i], 1e-4) << i;
}

// A causal model becomes a classifier: its language-model head is dropped, and the classifier head comes from the
// adapter.
TEST(ClassifierFiles, ACausalModelsAdapterMerged) {
  const TempFolder folder;
  Recipe recipe = class_recipe("llama2", kSingle, "lora");  // in llama2, the language-model head is tied
  recipe.adapter_name_or_path.clear();
  ClassRun run(recipe);
  for (int step = 0; step < 2; ++step) run.advance(5e-3);
  std::filesystem::create_directory(folder / "adapter");
  write_result(folder / "adapter", run.run, run.repository, run.state);
  recipe.adapter_name_or_path = {(folder / "adapter").string()};
  recipe.export_dir = (folder / "merged").string();
  EXPECT_TRUE(run_export(Request(recipe, Command::kExport)).logits);
  const ModelRepository merged = ModelRepository::open(folder / "merged");
  EXPECT_TRUE(merged.contains("score.weight"));
  EXPECT_EQ(merged.config()["architectures"], Json({"LlamaForSequenceClassification"}));
  EXPECT_EQ(merged.config()["id2label"]["2"], "LABEL_2");
}

TEST(ClassifierFiles, FullTuningWritesWhatItLoaded) {
  for (const char* model : {"bert", "roberta", "modernbert", "llama_classifier"}) {
    const TempFolder folder;
    Recipe recipe = class_recipe(model, kMulti, "full");
    recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
    ClassRun run(recipe);
    write_result(folder.path(), run.run, run.repository, run.state);
    const ModelRepository written = ModelRepository::open(folder.path());
    ASSERT_EQ(written.names(), run.repository.names());
    for (const std::string& name : written.names()) {
      const StoredTensor got = written.find(name), wanted = run.repository.find(name);
      const HostArray a = got.file->read(*got.entry), b = wanted.file->read(*wanted.entry);
      ASSERT_EQ(a.shape(), b.shape()) << name;
      EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << name;
    }
    EXPECT_EQ(written.config()["problem_type"], kMulti);
    Recipe copy = recipe;
    copy.export_dir = (folder / "copy").string();
    run_export(Request(copy, Command::kExport));
    EXPECT_TRUE(read_text(folder / "copy/model.safetensors") == read_text(reference_model(model) / "model.safetensors"))
        << model;
  }
}

// Writes the model's tensors to a new folder. `rename` returns each tensor's new name, or "" to leave it out.
void rename_tensors(const std::string& model, const std::filesystem::path& folder,
                    const std::function<std::string(std::string)>& rename) {
  const ModelRepository from = ModelRepository::open(reference_model(model));
  NamedShapes shapes;
  for (const std::string& name : from.names())
    if (const std::string now = rename(name); !now.empty()) shapes.emplace_back(now, from.find(name).entry->shape);
  std::filesystem::create_directories(folder);
  ModelWriter writer(folder, shapes, int64_t{1} << 30);
  for (const std::string& name : from.names())
    if (const std::string now = rename(name); !now.empty()) {
      const HostArray values = from.find(name).file->read(*from.find(name).entry);
      writer.write(now, {values.data(), static_cast<size_t>(values.bytes())});
    }
  writer.finish();
  Json config = from.config();
  config["architectures"] = {"BertModel"};
  config.erase("id2label");
  config.erase("label2id");
  write_text(folder / "config.json", config.dump());
}

// Reads a checkpoint with the tensor names of an encoder alone and of old checkpoints. It has no head, so the head gets
// random values from the seed.
TEST(ClassifierFiles, OtherNamesOfAnEncodersWeights) {
  const TempFolder folder;
  Recipe recipe = class_recipe("bert", kSingle, "full");
  const ClassRun plain(recipe);
  recipe.model_name_or_path = (folder / "alone").string();
  rename_tensors("bert", folder / "alone", [](std::string name) {
    if (name.starts_with("classifier")) return std::string();
    name = name.substr(std::string("bert.").size());
    for (const auto& [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (const size_t at = name.find(now); at != std::string::npos) name = name.substr(0, at) + then;
    return name;
  });
  const ClassRun renamed(recipe), again(recipe);
  for (const Param& param : plain.run.trained) {
    auto values = [&](const ClassRun& run) { return to_value(run.state.buffers.at(trained_input(param)).download()); };
    if (!param.hf_name.starts_with("classifier")) {
      EXPECT_EQ(values(renamed).elements, values(plain).elements) << param.hf_name;
      continue;
    }
    EXPECT_EQ(values(renamed).elements, values(again).elements) << "the seed decides";
    double square = 0;
    for (double x : values(renamed).elements) square += x * x;
    const double wanted = param.hf_name.ends_with(".bias") ? 0 : 0.02;
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(values(renamed).elements.size())), wanted, 0.004)
        << param.hf_name;
  }
}

// XLM-RoBERTa is RoBERTa under another name. Transformers treats it in the same way.
TEST(ClassifierFiles, XlmRobertaIsReadAsRoberta) {
  const Json config = ModelRepository::open(reference_model("roberta")).config();
  Json other = config;
  other["model_type"] = "xlm-roberta";
  const Model one = make_model(config, "config.json", 3), two = make_model(other, "config.json", 3);
  EXPECT_EQ(two.family->classifier.architecture, "XLMRobertaForSequenceClassification");
  EXPECT_EQ(two.config.first_position, one.config.first_position);
  using Function = Tensor (*)(Forward&);
  const Function* const ours = two.family->forward.target<Function>();
  ASSERT_NE(ours, nullptr);
  EXPECT_EQ(*ours, *one.family->forward.target<Function>());
  ASSERT_EQ(two.params.size(), one.params.size());
  for (size_t i = 0; i < one.params.size(); ++i) {
    EXPECT_EQ(two.params[i].hf_name, one.params[i].hf_name);
    EXPECT_EQ(two.params[i].dims, one.params[i].dims);
  }
}

}  // namespace
}  // namespace fettle
