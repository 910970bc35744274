#include "tokenizer/models/model.h"

#include <algorithm>
#include <cstring>

namespace fettle {
namespace {

constexpr int64_t kMostIds = 1 << 24;

}  // namespace

Vocabulary Vocabulary::read(const JsonField& field) {
  if (!field.is_object()) field.fail("wanted an object of tokens and their ids");
  Vocabulary result;
  result.by_token_.reserve(field.value().size());
  for (const auto& [token, id] : field.value().items()) {
    if (!id.is_number_integer()) field.fail("the id of token '{}' is {}, wanted a whole number", token, id.dump());
    if (result.add(token, id.get<int64_t>())) continue;
    const int64_t wrong = id.get<int64_t>();
    if (wrong < 0 || wrong >= kMostIds) field.fail("the id of token '{}' is {}, which is not a valid id", token, wrong);
    field.fail("tokens '{}' and '{}' have the same id {}", *result.token(static_cast<int32_t>(wrong)), token, wrong);
  }
  return result;
}

bool Vocabulary::add(std::string token, int64_t id) {
  if (id < 0 || id >= kMostIds) return false;
  if (id >= size()) by_id_.resize(id + 1, nullptr);
  if (by_id_[id] != nullptr) return false;
  by_id_[id] = &by_token_.insert_or_assign(std::move(token), static_cast<int32_t>(id)).first->first;
  return true;
}

std::optional<int32_t> Vocabulary::id(std::string_view token) const {
  const auto found = by_token_.find(token);
  return found == by_token_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token(int32_t id) const {
  return id >= 0 && id < size() ? by_id_[id] : nullptr;
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kWordMost) return false;
  const Slot& slot = slots_[slot_of(word)];
  if (slot.length != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) return false;
  ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
  return true;
}

void WordCache::put(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kWordMost || ids.size() > kIdsMost) return;
  Slot& slot = slots_[slot_of(word)];
  slot.length = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(ids.size());
  std::memcpy(slot.word, word.data(), word.size());
  std::copy(ids.begin(), ids.end(), slot.ids);
}

void TokenModel::encode(std::span<const Piece> pieces, std::vector<int32_t>& ids) const {
  std::unique_ptr<WordCache> cache;
  {
    const std::lock_guard lock(mutex_);
    if (!free_caches_.empty()) {
      cache = std::move(free_caches_.back());
      free_caches_.pop_back();
    }
  }
  if (!cache) cache = std::make_unique<WordCache>();
  for (const Piece& piece : pieces) {
    if (piece.id != Piece::kNoId) {
      ids.push_back(piece.id);
    } else if (!cache->find(piece.text, ids)) {
      const size_t before = ids.size();
      encode_word(piece.text, ids);
      cache->put(piece.text, std::span(ids).subspan(before));
    }
  }
  const std::lock_guard lock(mutex_);
  free_caches_.push_back(std::move(cache));
}

}  // namespace fettle
