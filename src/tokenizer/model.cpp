#include "tokenizer/model.h"

namespace fettle {
namespace {

constexpr int64_t kMostIds = 1 << 28;

}  // namespace

Vocabulary Vocabulary::read(const JsonField& field) {
  if (!field.is_object()) field.fail("wanted an object of tokens and their ids");
  Vocabulary result;
  result.by_token_.reserve(field.value().size());
  for (const auto& [token, id] : field.value().items()) {
    if (!id.is_number_integer()) field.fail("the id of token '{}' is {}, wanted a whole number", token, id.dump());
    if (result.add(token, id.get<int64_t>())) continue;
    const int64_t wrong = id.get<int64_t>();
    if (wrong < 0 || wrong >= kMostIds) field.fail("the id of token '{}' is {}, which is no id", token, wrong);
    field.fail("tokens '{}' and '{}' have the same id {}", *result.token(static_cast<int32_t>(wrong)), token, wrong);
  }
  return result;
}

bool Vocabulary::add(std::string token, int64_t id) {
  if (id < 0 || id >= kMostIds) return false;
  if (id >= size()) by_id_.resize(id + 1, nullptr);
  if (by_id_[id] != nullptr) return false;
  by_id_[id] = &by_token_.try_emplace(std::move(token), static_cast<int32_t>(id)).first->first;
  return true;
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = by_token_.find(token);
  return found == by_token_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token(int32_t id) const {
  return id >= 0 && id < size() ? by_id_[id] : nullptr;
}

}  // namespace fettle
