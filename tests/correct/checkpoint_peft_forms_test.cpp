// Tests adapters in the forms that older versions of PEFT and Transformers wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/json_file.h"
#include "checkpoint/peft/adapter_merge.h"
#include "checkpoint/peft/adapter_options.h"
#include "checkpoint/repository.h"
#include "checkpoint/safetensors.h"
#include "reference_models.h"
#include "temp_folder.h"
#include "torch_files.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using NamedArrays = std::vector<std::pair<std::string, HostArray>>;

Model model_of(const std::string& name) {
  return make_model(ModelRepository::open(reference_model(name)).config(), "config.json");
}

// Copies an adapter with other names of its tensors ("" leaves a tensor out), and with further tensors.
void copy_adapter(const fs::path& from, const fs::path& to, const std::function<std::string(std::string)>& rename,
                  const NamedArrays& more = {}) {
  fs::create_directories(to);
  fs::copy_file(from / "adapter_config.json", to / "adapter_config.json");
  const SafetensorsFile file = SafetensorsFile::open(from / "adapter_model.safetensors");
  NamedArrays tensors;
  for (const TensorEntry& entry : file.entries())
    if (const std::string name = rename(entry.name); !name.empty()) tensors.emplace_back(name, file.read(entry));
  for (const auto& [name, array] : more) tensors.emplace_back(name, array.to(DType::kF32));
  NamedShapes shapes;
  for (const auto& [name, array] : tensors) shapes.emplace_back(name, array.shape());
  SafetensorsWriter writer(to / "adapter_model.safetensors", shapes);
  for (const auto& [name, array] : tensors) writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
  writer.finish();
}

// Copies a model's reference adapter with `now` replaced by `other` in the names of its tensors.
void rename_in_adapter(const std::string& model, const std::string& now, const std::string& other, const fs::path& to) {
  copy_adapter(reference_model(model) / "adapter_final", to, [&](std::string key) {
    const size_t at = key.find(now);
    EXPECT_NE(at, std::string::npos) << key;
    return key.replace(at, now.size(), other);
  });
}

void expect_same_adapter(const std::string& name, const fs::path& renamed) {
  const Model model = model_of(name);
  const AdapterFolder now = open_adapter(reference_model(name) / "adapter_final"), other = open_adapter(renamed);
  const LoraOptions wanted = adapter_options(now, model), got = adapter_options(other, model);
  EXPECT_EQ(got.modules, wanted.modules);
  for (const Param& param : lora_params(model, wanted))
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const TensorEntry *one = now.find(param.stored_name(i)), *two = other.find(param.stored_name(i));
      ASSERT_TRUE(one != nullptr && two != nullptr) << param.stored_name(i);
      EXPECT_EQ(one->shape, two->shape);
    }
}

TEST(PeftForms, NamesOfTheTextModelBeforeTransformers452) {
  for (const char* name : {"gemma3_wrapped", "mistral3"}) {
    const TempFolder folder;
    rename_in_adapter(name, "model.language_model.", "language_model.model.", folder / "older");
    expect_same_adapter(name, folder / "older");
  }
}

TEST(PeftForms, NamesOfTheClassForText) {
  for (const auto& [name, prefix] : {std::pair{"qwen3_5", "model.language_model."},
                                     {"qwen3_5_moe", "model.language_model."},
                                     {"llama4", "language_model.model."}}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    rename_in_adapter(name, prefix, "model.", folder / "text");
    expect_same_adapter(name, folder / "text");
  }
}

// The patterns of ranks and alphas match the names in the file.
TEST(PeftForms, PatternsOfTheClassForText) {
  const auto check = [](const std::string& name, const std::string& adapter, const std::string& prefix,
                        const std::string& modules, const std::string& refusal) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const fs::path text = folder / "text";
    const Model model = model_of(name);
    copy_adapter(reference_model(name) / adapter, text,
                 [&](std::string key) { return key.replace(key.find(prefix), prefix.size(), "model."); });
    const auto set_alpha = [&](const std::string& pattern) {
      auto config = read_json_file<nlohmann::json>(text / "adapter_config.json");
      config["alpha_pattern"] = {{pattern, 3}};
      write_text(text / "adapter_config.json", config.dump());
    };
    set_alpha("^model.layers.0." + modules);
    EXPECT_THAT(user_error([&] { adapter_options(open_adapter(text), model); }), HasSubstr(refusal));
    set_alpha("^" + prefix + "layers.0." + modules);
    adapter_options(open_adapter(text), model);
  };
  check("qwen3_5", "adapter_final", "model.language_model.", ".*",
        "different ranks or alphas, which is not supported (here: model.layers.");
  check("llama4", "variants/experts_final", "language_model.model.", ".*experts.*", "has its own rank or alpha");
}

// Some tools write the rank of each module, also if all ranks are equal.
TEST(PeftForms, PatternsThatGiveAllModulesOneRank) {
  const TempFolder folder;
  copy_adapter(reference_model("llama") / "adapter_final", folder / "same", [](std::string key) { return key; });
  const LoraOptions wanted = adapter_options(open_adapter(folder / "same"), model_of("llama"));
  auto config = read_json_file<nlohmann::json>(folder / "same/adapter_config.json");
  config["r"] = wanted.rank + 5;
  config["lora_alpha"] = 3;
  for (const std::string& module : wanted.modules) {
    const std::string name = module.substr(module.rfind('.') + 1);
    config["rank_pattern"][name] = wanted.rank;
    config["alpha_pattern"][name] = wanted.alpha;
  }
  write_text(folder / "same/adapter_config.json", config.dump());
  const LoraOptions options = adapter_options(open_adapter(folder / "same"), model_of("llama"));
  EXPECT_EQ(options.modules, wanted.modules);
  EXPECT_EQ(options.rank, wanted.rank);
  EXPECT_EQ(options.alpha, wanted.alpha);
}

// A list of modules_to_save may serve several models.
TEST(PeftForms, SavedModulesThatTheModelLacks) {
  const TempFolder folder;
  copy_adapter(reference_model("llama") / "adapter_final", folder / "more", [](std::string key) { return key; });
  auto config = read_json_file<nlohmann::json>(folder / "more/adapter_config.json");
  config["modules_to_save"] = {"classifier", "score"};
  write_text(folder / "more/adapter_config.json", config.dump());
  expect_same_adapter("llama", folder / "more");
}

TEST(PeftForms, TablesThatNoListNames) {
  const Model model = model_of("llama");
  auto tables = [&](int64_t rows) {
    NamedArrays out;
    for (const char* table : {"model.embed_tokens", "lm_head"})
      out.emplace_back("base_model.model." + std::string(table) + ".weight",
                       HostArray::zeros({DType::kF32, {rows, model.config.hidden_size}}));
    return out;
  };
  const auto same = [](std::string key) { return key; };
  const TempFolder folder;
  copy_adapter(reference_model("llama") / "adapter_final", folder / "fits", same, tables(model.config.vocab_size));
  const LoraOptions options = adapter_options(open_adapter(folder / "fits"), model);
  EXPECT_THAT(options.saved, testing::UnorderedElementsAre("embed_tokens", "lm_head"));
  EXPECT_THAT(without_stored(options).saved, testing::IsEmpty());
  copy_adapter(reference_model("llama") / "adapter_final", folder / "more", same, tables(model.config.vocab_size + 2));
  EXPECT_THAT(user_error([&] { adapter_options(open_adapter(folder / "more"), model); }),
              AllOf(HasSubstr("trained with other tokens"), HasSubstr("add_tokens")));
  copy_adapter(reference_model("llama") / "adapter_final", folder / "fewer", same, tables(model.config.vocab_size - 2));
  const std::string rows = std::to_string(model.config.vocab_size - 2);
  EXPECT_THAT(user_error([&] { adapter_options(open_adapter(folder / "fewer"), model); }),
              AllOf(HasSubstr("has " + rows + " rows, but the model has"),
                    HasSubstr("resize_token_embeddings(" + rows + ")"), HasSubstr("add only those")));
}

// The tables have the family's names. A tied head has the embedding's values.
TEST(PeftForms, TablesWithOtherNamesThatNoListNames) {
  for (const auto& [name, tables] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{{"gpt2", {"transformer.wte", "lm_head"}},
                                                                     {"gpt_neox", {"gpt_neox.embed_in", "embed_out"}},
                                                                     {"phi", {"model.embed_tokens", "lm_head"}}}) {
    SCOPED_TRACE(name);
    const Model model = model_of(name);
    NamedArrays more;
    std::vector<std::string> last;
    for (const std::string& table : tables) {
      more.emplace_back("base_model.model." + table + ".weight",
                        HostArray::zeros({DType::kF32, {model.config.vocab_size, model.config.hidden_size}}));
      last.push_back(last_part(table));
    }
    if (name == "phi")  // its head has a bias
      more.emplace_back("base_model.model.lm_head.bias", HostArray::zeros({DType::kF32, {model.config.vocab_size}}));
    const TempFolder folder;
    copy_adapter(
        reference_model(name) / "adapter_final", folder / "tables", [](std::string key) { return key; }, more);
    const LoraOptions options = adapter_options(open_adapter(folder / "tables"), model);
    EXPECT_THAT(options.saved, testing::UnorderedElementsAreArray(last));
    EXPECT_THAT(without_stored(options).saved, testing::IsEmpty());
  }
}

// If the vocabulary was resized, PEFT also stores its wrappers' copies of embedding and head.
TEST(PeftForms, CopiesOfSavedTables) {
  const Model model = model_of("llama");
  const HostArray table = HostArray::zeros({DType::kF32, {model.config.vocab_size, model.config.hidden_size}});
  NamedArrays more;
  for (const char* module : {"model.embed_tokens", "lm_head"})
    for (const char* copy : {"", ".original_module", ".modules_to_save"})
      more.emplace_back("base_model.model." + std::string(module) + copy + ".weight", table.to(DType::kF32));
  const TempFolder folder;
  copy_adapter(
      reference_model("llama") / "adapter_final", folder / "copies", [](std::string key) { return key; }, more);
  const auto save = [&](const std::vector<std::string>& modules) {
    auto config = read_json_file<nlohmann::json>(folder / "copies/adapter_config.json");
    config["modules_to_save"] = modules;
    write_text(folder / "copies/adapter_config.json", config.dump());
    return user_error([&] {
      EXPECT_THAT(adapter_options(open_adapter(folder / "copies"), model).saved,
                  testing::UnorderedElementsAre("embed_tokens", "lm_head"));
    });
  };
  EXPECT_EQ(save({"embed_tokens", "lm_head"}), "no error");
  EXPECT_THAT(save({"embed_tokens"}),
              AllOf(HasSubstr("2 of "), HasSubstr("'base_model.model.lm_head.modules_to_save.weight'")));
}

// Sets a field of an adapter's config; null removes it.
void set_field(const fs::path& adapter, const std::string& field, const nlohmann::json& value) {
  auto config = read_json_file<nlohmann::json>(adapter / "adapter_config.json");
  config[field] = value;
  if (value.is_null()) config.erase(field);
  write_text(adapter / "adapter_config.json", config.dump());
}

TEST(PeftForms, ParametersOfOneLayer) {
  const TempFolder folder;
  copy_adapter(reference_model("gpt_oss") / "variants/experts", folder / "one",
               [](std::string key) { return key.find("layers.1.") == std::string::npos ? key : ""; });
  set_field(folder / "one", "target_parameters", {"0.mlp.experts.gate_up_proj", "0.mlp.experts.down_proj"});
  EXPECT_THAT(user_error([&] { adapter_options(open_adapter(folder / "one"), model_of("gpt_oss")); }),
              AllOf(HasSubstr("one/adapter_model.safetensors: target_parameters: '0.mlp.experts.gate_up_proj'"),
                    HasSubstr("names one layer"), HasSubstr("merge the adapter with PEFT")));
}

// Copies an adapter with LoRA on experts, but only keeps the LoRA weights of down_proj. They become zeros, A [E * r, a]
// and B [b, r * E].
void copy_down_proj(const fs::path& from, const fs::path& to, int64_t a, int64_t b) {
  fs::remove_all(to);
  NamedArrays zeros;
  const SafetensorsFile file = SafetensorsFile::open(from / "adapter_model.safetensors");
  for (const TensorEntry& entry : file.entries()) {
    const auto& dims = entry.shape.dims;
    if (entry.name.find(".experts.lora_A") != std::string::npos)
      zeros.emplace_back(entry.name, HostArray::zeros({DType::kF32, {dims[0], a}}));
    if (entry.name.find(".experts.lora_B") != std::string::npos)
      zeros.emplace_back(entry.name, HostArray::zeros({DType::kF32, {b, dims[1]}}));
  }
  copy_adapter(
      from, to, [](const std::string&) { return ""; }, zeros);
  set_field(to, "target_parameters", {"mlp.experts.down_proj"});
}

// PEFT before 0.19.1 gives lora_A and lora_B of experts each other's side.
TEST(PeftForms, SidesOfExpertsInOlderVersions) {
  const TempFolder folder;
  const fs::path mixtral = reference_model("mixtral") / "variants/experts_down",
                 gpt_oss = reference_model("gpt_oss") / "variants/experts";
  auto message = [&](const std::string& family, int64_t size, const char* version) {
    auto config = ModelRepository::open(reference_model(family)).config();
    config["intermediate_size"] = size;
    const Model model = make_model(config, "config.json");
    set_field(folder / "adapter", "peft_version", version == nullptr ? nlohmann::json() : nlohmann::json(version));
    return user_error([&] { adapter_options(open_adapter(folder / "adapter"), model); });
  };
  const auto refused = HasSubstr("have each other's side of the experts' weights");

  copy_down_proj(mixtral, folder / "adapter", 96, 64);
  for (const char* version : {"0.18.1", "0.21.2"}) EXPECT_EQ(message("mixtral", 96, version), "no error");
  copy_down_proj(mixtral, folder / "adapter", 64, 96);
  EXPECT_THAT(message("mixtral", 96, "0.18.1"), AllOf(refused, HasSubstr("PEFT 0.18.1")));
  EXPECT_THAT(message("mixtral", 96, nullptr), AllOf(refused, HasSubstr("unknown version")));

  copy_down_proj(mixtral, folder / "adapter", 64, 64);
  for (const char* version : {"0.18.1", "0.19.0"}) EXPECT_THAT(message("mixtral", 64, version), refused) << version;
  for (const char* version : {"0.19.1", "0.20.0.dev0", "1.0", static_cast<const char*>(nullptr)})
    EXPECT_EQ(message("mixtral", 64, version), "no error");
  copy_down_proj(gpt_oss, folder / "adapter", 64, 64);
  for (const char* version : {"0.18.1", "0.19.1", "0.21.2"})
    EXPECT_EQ(message("gpt_oss", 64, version), "no error") << version;
  EXPECT_THAT(message("gpt_oss", 64, "0.19.0"), refused);
}

TEST(PeftForms, LoraWeightsOfSingleExperts) {
  const TempFolder folder;
  const fs::path from = reference_model("mixtral") / "adapter_final";
  const int64_t rank = open_adapter(from).config.r;
  const std::string module = "base_model.model.model.layers.0.block_sparse_moe.experts.0.w1.";
  NamedArrays pair;
  pair.emplace_back(module + "lora_A.weight", HostArray::zeros({DType::kF32, {rank, 64}}));
  pair.emplace_back(module + "lora_B.weight", HostArray::zeros({DType::kF32, {96, rank}}));
  copy_adapter(
      from, folder / "single", [](std::string key) { return key; }, pair);
  auto message = [&](const char* model) {
    return user_error([&] { adapter_options(open_adapter(folder / "single"), model_of(model)); });
  };
  EXPECT_THAT(message("mixtral"),
              AllOf(HasSubstr("experts.0.w1' has LoRA weights of its own"), HasSubstr("PEFT under Transformers 5")));
  // PEFT joins the pairs of some families only.
  EXPECT_THAT(message("qwen2_moe"), AllOf(HasSubstr("experts.0.w1' has LoRA weights of its own"),
                                          HasSubstr("PEFT under the version of Transformers 4")));
}

TEST(PeftForms, WeightsInPyTorchsFormat) {
  const TempFolder folder;
  write_text(folder / "adapter_config.json", R"({"peft_type":"LORA","r":2,"target_modules":["q"]})");
  Pickle pickle;
  pickle.dict().raw("(").text("base_model.model.q.lora_A.weight").tensor("0", 6, 0, {2, 3}, {3, 1});
  pickle.text("base_model.model.q.lora_B.weight").tensor("1", 4, 0, {2, 2}, {2, 1}).raw("u");
  write_text(folder / "adapter_model.bin", zip_of({{"f/data.pkl", pickle.stop()},
                                                   {"f/data/0", floats({1, 2, 3, 4, 5, 6})},
                                                   {"f/data/1", floats({7, 8, 9, 10})}}));
  const AdapterFolder adapter = open_adapter(folder.path());
  const HostArray b = adapter.file.read(*adapter.find("q", AdapterPart::kLoraB));
  EXPECT_EQ(std::vector<float>(b.as<float>().begin(), b.as<float>().end()), (std::vector<float>{7, 8, 9, 10}));
}

}  // namespace
}  // namespace fettle
