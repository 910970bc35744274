#include "models/classifier_config.h"

namespace fettle {

nlohmann::json classifier_config(nlohmann::json config, const Model& model, const std::string& problem_type,
                                 const std::vector<std::string>& names) {
  config["architectures"] = {model.family->classifier.architecture};
  nlohmann::json id2label = nlohmann::json::object(), label2id = nlohmann::json::object();
  for (int64_t i = 0; i < model.config.num_labels; ++i) {
    const auto number = static_cast<size_t>(i);
    const std::string name = number < names.size() ? names[number] : default_label(i);
    id2label[std::to_string(i)] = name;
    label2id[name] = i;
  }
  config["id2label"] = std::move(id2label);
  config["label2id"] = std::move(label2id);
  config.erase("num_labels");  // Transformers derives it from id2label
  if (problem_type.empty())
    config.erase("problem_type");
  else
    config["problem_type"] = problem_type;
  return config;
}

nlohmann::json adapter_labels(const nlohmann::json& config) {
  nlohmann::json out = nlohmann::json::object();
  for (const char* key : {"architectures", "id2label", "label2id", "problem_type"})
    if (config.contains(key)) out[key] = config[key];
  return out;
}

}  // namespace fettle
