#include "config/foreign/settings_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>

#include "config/yaml_text.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Names of configurations that ms-swift and TRL contain. A file of such a name counts first. Those of TRL ask for no
// offload.
constexpr std::string_view kSwiftsNames[] = {"zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload"};
constexpr std::string_view kTrlsNames[] = {"fsdp1", "fsdp2", "zero1", "zero2", "zero3", "multi_gpu", "single_gpu"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns the entry `name` of a map; an undefined node if `node` is not a map or lacks the entry.
YAML::Node inner(const YAML::Node& node, const char* name) {
  return node.IsDefined() && node.IsMap() ? node[name] : YAML::Node(YAML::NodeType::Undefined);
}

bool is_number(const YAML::Node& node) {
  if (!node.IsDefined() || !node.IsScalar() || node.Scalar().empty()) return false;
  return std::isdigit(static_cast<unsigned char>(node.Scalar()[0])) != 0;
}

// Returns whether `node` is a map whose `device` is set and is not the word none, such as {device: cpu}.
bool names_device(const YAML::Node& node) {
  const YAML::Node device = inner(node, "device");
  return device.IsDefined() && device.IsScalar() && device.Scalar() != "none" && device.Scalar() != "";
}

// Returns `node`. If `node` is the name of a file, returns the content of the file instead. If the file cannot be read,
// sets `unread` to its name and returns a null node.
YAML::Node content(const YAML::Node& node, const fs::path& recipe, std::string& unread) {
  if (!node.IsScalar() || node.Scalar().empty()) return node;
  for (const fs::path& file : {fs::path(node.Scalar()), recipe.parent_path() / node.Scalar()}) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) continue;
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    try {
      return parse_yaml(text.str());  // JSON is YAML too
    } catch (const YAML::Exception&) {
      break;
    }
  }
  unread = node.Scalar();
  return {};
}

void offload(Settings& out, bool optimizer, bool param) {
  if (optimizer) out.wishes["offload_optimizer"] = "true";
  if (param) out.wishes["offload_param"] = "true";
}

bool is_nvme(const YAML::Node& device) {
  return device.IsDefined() && device.IsScalar() && device.Scalar() == "nvme";
}

// Wishes for offload_dir in `folder` if DeepSpeed keeps the optimizer state on NVMe. The wish for offload_optimizer
// stays for runs without a folder, and for those that cannot use offload_dir. If DeepSpeed keeps the weights on NVMe
// too, the float32 weights go to the same folder.
void offload_to_disk(Settings& out, const YAML::Node& device, const YAML::Node& folder, const YAML::Node& of_weights) {
  if (!is_nvme(device)) return;
  if (!folder.IsDefined() || !folder.IsScalar() || folder.Scalar().empty() || folder.Scalar() == "none") return;
  out.wishes["offload_dir"] = folder.Scalar();
  if (is_nvme(of_weights)) out.wishes["offload_dir_weights"] = "true";
}

void copy_number(Settings& out, const YAML::Node& from, const char* key) {
  if (is_number(from) && from.as<double>() > 0) out.wishes[key] = from.Scalar();
}

// Reads DeepSpeed's `scheduler`, which Transformers uses instead of lr_scheduler_type. The value of a type that Fettle
// does not have is the type's name.
void read_scheduler(Settings& out, const YAML::Node& scheduler) {
  const YAML::Node type = inner(scheduler, "type"), params = inner(scheduler, "params");
  if (!type.IsDefined() || !type.IsScalar()) return;
  const std::string name = type.Scalar();
  const YAML::Node last = inner(params, "cos_min_ratio");
  const bool ends_above_zero = name == "WarmupCosineLR" && is_number(last) && last.as<double>(0) > 0;
  out.scheduler = name;
  out.wishes["lr_scheduler_type"] = name == "WarmupLR"         ? "constant_with_warmup"
                                    : name == "WarmupDecayLR"  ? "linear"
                                    : ends_above_zero          ? "cosine_with_min_lr"
                                    : name == "WarmupCosineLR" ? "cosine"
                                                               : name;
  if (ends_above_zero) out.wishes["min_lr_rate"] = last.Scalar();
  copy_number(out, inner(params, "warmup_num_steps"), "warmup_steps");
  if (name != "WarmupCosineLR") copy_number(out, inner(params, "warmup_max_lr"), "learning_rate");
  const auto number_of = [&](const char* key) {
    const YAML::Node node = inner(params, key);
    return is_number(node) ? node.as<double>(0) : 0;
  };
  if (const double total = number_of("total_num_steps"); total > 0)
    out.notes.push_back(fmt::format("total_num_steps: {} has no effect here: the schedule ends with the run", total));
  for (const char* key : {"warmup_min_lr", "warmup_min_ratio"})
    if (number_of(key) > 0) out.notes.push_back(fmt::format("{} has no effect here: a warmup starts at 0", key));
  const YAML::Node form = inner(params, "warmup_type");
  if (!form.IsDefined() || !form.IsScalar() || form.Scalar() != "linear")
    out.notes.push_back("a warmup is linear here; DeepSpeed's is logarithmic unless warmup_type is linear");
}

Settings of_deepspeed(const YAML::Node& given, const fs::path& recipe) {
  Settings out;
  const YAML::Node config = content(given, recipe, out.unread);
  if (is_one_of(kSwiftsNames, out.unread)) {
    const bool offloads = out.unread.ends_with("_offload");
    offload(out, offloads, offloads && out.unread.starts_with("zero3"));
    out.unread.clear();
  }
  if (!config.IsMap()) return out;
  const YAML::Node zero = inner(config, "zero_optimization");
  offload(out, names_device(inner(zero, "offload_optimizer")) || is_on(inner(zero, "cpu_offload")),
          names_device(inner(zero, "offload_param")) || is_on(inner(zero, "cpu_offload_params")));
  const YAML::Node optimizer = inner(zero, "offload_optimizer");
  offload_to_disk(out, inner(optimizer, "device"), inner(optimizer, "nvme_path"),
                  inner(inner(zero, "offload_param"), "device"));
  if (is_on(inner(inner(config, "bf16"), "enabled"))) out.wishes["bf16"] = "true";
  if (is_on(inner(inner(config, "fp16"), "enabled"))) out.wishes["fp16"] = "true";
  copy_number(out, inner(config, "train_micro_batch_size_per_gpu"), "per_device_train_batch_size");
  copy_number(out, inner(config, "gradient_accumulation_steps"), "gradient_accumulation_steps");
  copy_number(out, inner(config, "gradient_clipping"), "max_grad_norm");
  if (const YAML::Node tp = inner(inner(config, "tensor_parallel"), "autotp_size"); is_number(tp) && tp.Scalar() != "1")
    out.wishes["mesh.tp"] = tp.Scalar();
  const YAML::Node params = inner(inner(config, "optimizer"), "params");
  copy_number(out, inner(params, "lr"), "learning_rate");
  copy_number(out, inner(params, "weight_decay"), "weight_decay");
  read_scheduler(out, inner(config, "scheduler"));
  return out;
}

// Reads accelerate's numbers of devices. Those of cp and sp split sequences in two ways, for which Fettle has one axis.
// accelerate counts rows for each device of dp_replicate x dp_shard, as Fettle does for dp x fsdp.
void read_parallelism(Settings& out, const YAML::Node& config) {
  static constexpr std::pair<const char*, const char*> kSizes[] = {{"dp_replicate_size", "mesh.dp"},
                                                                   {"dp_shard_size", "mesh.fsdp"},
                                                                   {"tp_size", "mesh.tp"},
                                                                   {"cp_size", "mesh.sp"},
                                                                   {"sp_size", "mesh.sp"}};
  for (const auto& [name, axis] : kSizes) {
    const YAML::Node full = inner(config, (std::string("parallelism_config_") + name).c_str());
    const YAML::Node size = full.IsDefined() ? full : inner(config, name);
    if (is_number(size) && size.as<double>(0) > 1) out.wishes[axis] = size.Scalar();
  }
}

// Reads an FSDP configuration. Also reads a configuration of accelerate, in which a key contains the FSDP or DeepSpeed
// settings.
Settings of_fsdp_config(const YAML::Node& given, const fs::path& recipe) {
  Settings out;
  const YAML::Node whole = content(given, recipe, out.unread);
  if (is_one_of(kTrlsNames, out.unread)) out.unread.clear();
  if (!whole.IsMap()) return out;
  if (const YAML::Node mixed = inner(whole, "mixed_precision"); mixed.IsDefined() && mixed.IsScalar()) {
    if (mixed.Scalar() == "bf16") out.wishes["bf16"] = "true";
    if (mixed.Scalar() == "fp16") out.wishes["fp16"] = "true";
  }
  if (is_on(inner(whole, "use_cpu"))) out.wishes["plugin"] = "cpu";
  read_parallelism(out, inner(whole, "parallelism_config"));
  if (const YAML::Node zero = inner(whole, "deepspeed_config"); zero.IsDefined() && zero.IsMap()) {
    auto on_cpu = [&](const char* name) {
      const YAML::Node device = inner(zero, name);
      return device.IsDefined() && device.IsScalar() && (device.Scalar() == "cpu" || device.Scalar() == "nvme");
    };
    offload(out, on_cpu("offload_optimizer_device"), on_cpu("offload_param_device"));
    offload_to_disk(out, inner(zero, "offload_optimizer_device"), inner(zero, "offload_optimizer_nvme_path"),
                    inner(zero, "offload_param_device"));
    copy_number(out, inner(zero, "gradient_accumulation_steps"), "gradient_accumulation_steps");
    copy_number(out, inner(zero, "gradient_clipping"), "max_grad_norm");
  }
  const YAML::Node nested = inner(whole, "fsdp_config");
  const YAML::Node config = nested.IsDefined() && nested.IsMap() ? nested : whole;
  for (const char* name : {"fsdp_offload_params", "offload_params", "cpu_offload", "fsdp_cpu_offload"})
    if (is_on(inner(config, name))) offload(out, true, true);
  return out;
}

Settings of_fsdp(const YAML::Node& given) {
  std::string words;
  if (given.IsScalar()) words = given.Scalar();
  if (given.IsSequence())
    for (const auto& word : given)
      if (word.IsScalar()) words += " " + word.Scalar();
  Settings out;
  const bool asks = (" " + words + " ").find(" offload ") != std::string::npos;
  offload(out, asks, asks);
  return out;
}

}  // namespace

std::optional<Settings> read_settings(std::string_view key, const GivenValue& given, const fs::path& recipe) {
  if (key == "deepspeed" || key == "dist_config.config_file") return of_deepspeed(given.node, recipe);
  if (key == "fsdp") return of_fsdp(given.node);
  if (key == "fsdp_config" || key == "accelerate_config") return of_fsdp_config(given.node, recipe);
  Settings out;
  if (key == "use_kt") {  // KTransformers keeps the experts in host memory
    offload(out, false, is_on(given.node));
    return out;
  }
  if (!key.starts_with("fsdp_")) return std::nullopt;
  const bool asks = key.find("offload") != std::string_view::npos && is_on(given.node);
  offload(out, asks, asks);
  return out;
}

}  // namespace fettle
