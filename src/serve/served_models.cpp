#include "serve/served_models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/peft/adapter_options.h"

namespace fettle {
namespace {

// Returns the last name in the title of a model with its adapters: for "a/b" and for "c + a/b", this is "a/b".
std::string full_name_of(const std::string& title) {
  constexpr std::string_view kPlus = " + ";
  const size_t plus = title.rfind(kPlus);
  return plus == std::string::npos ? title : title.substr(plus + kPlus.size());
}

// Returns the part of a name after the last "/" or space.
std::string last_word(std::string name) {
  while (name.ends_with('/')) name.pop_back();
  return name.substr(name.find_last_of("/ ") + 1);
}

struct Named {
  std::string name, path;
};

std::vector<Named> read_lora_modules(const std::vector<std::string>& entries) {
  std::vector<Named> out;
  for (const std::string& entry : entries) {
    const size_t sign = entry.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == entry.size() || entry.starts_with('{'))
      throw UserError("--lora-modules: '{}' is not NAME=PATH, such as sql=out/sql", entry);
    out.push_back({entry.substr(0, sign), entry.substr(sign + 1)});
  }
  return out;
}

void check_names(const std::vector<ServedModel>& models) {
  for (size_t i = 0; i < models.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (models[i].name == models[j].name)
        throw UserError(
            "two models would have the name '{}' ({} and {}); choose another name in --lora-modules, or with --name "
            "for the "
            "first model",
            models[i].name, models[j].root, models[i].root);
}

}  // namespace

std::string ServedModels::base() const {
  if (adapters == Session::Adapters::kTogether) return "";
  return std::ranges::find(models, false, &ServedModel::is_adapter)->name;
}

const ServedModel* ServedModels::find(const std::string& name) const {
  if (name.empty()) return &models[0];
  for (const auto known : {&ServedModel::name, &ServedModel::full_name}) {
    const auto at = std::ranges::find(models, name, known);
    if (at != models.end()) return &*at;
  }
  return nullptr;
}

ServedModels served_models(const Request& request, const std::vector<std::string>& lora_modules,
                           const std::string& name) {
  const std::vector<Named> named = read_lora_modules(lora_modules);
  const std::vector<std::string>& own = request.adapters();
  if (own.size() > 1 && !named.empty())
    throw UserError(
        "adapter_name_or_path names {} adapters, which are merged into one model; with --lora-modules, name at most "
        "one there. To serve adapters of the merged model, export this model first",
        own.size());
  bool together = own.size() > 1;
  if (own.size() == 1 && named.empty()) {
    const Model model = make_model(request.repository().config(), request.config_file());
    const std::string obstacle = side_obstacle(adapter_options(open_adapter(own[0]), model));
    together = !obstacle.empty();
    if (together) info("the base is not served beside the adapter {}: {}", own[0], obstacle);
  }
  auto first_name = [&](const std::string& usual) { return name.empty() ? usual : name; };
  const std::string own_name = full_name_of(request.model_title());
  if (together)
    return {request,
            Session::Adapters::kTogether,
            {{.name = first_name(last_word(own_name)), .root = request.model_folder(), .full_name = own_name}}};
  std::vector<std::string> folders = own;
  for (const Named& one : named) {
    folders.push_back(one.path);
    if (const std::string missing = request.with_adapters({one.path}).missing_adapters(); !missing.empty())
      throw UserError(
          "--lora-modules: {}; adapters that are served side by side are not merged, so export these two first",
          missing);
  }
  ServedModels out{request.with_adapters(folders), Session::Adapters::kSideBySide, {}};
  const std::string base_name = full_name_of(request.without_adapters().model_title()), base = last_word(base_name);
  const std::vector<std::string>& found = out.request.adapters();
  if (!own.empty())
    out.models.push_back({.name = first_name(last_word(own_name)),
                          .root = found[0],
                          .adapter = 0,
                          .is_adapter = true,
                          .full_name = own_name});
  out.models.push_back(
      {.name = own.empty() ? first_name(base) : base, .root = request.model_folder(), .full_name = base_name});
  for (size_t i = 0; i < named.size(); ++i)
    out.models.push_back({.name = named[i].name,
                          .root = found[own.size() + i],
                          .adapter = std::ssize(own) + static_cast<int64_t>(i),
                          .is_adapter = true});
  check_names(out.models);
  return out;
}

}  // namespace fettle
