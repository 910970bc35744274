#include "data/data_spec.h"

#include "base/error.h"

namespace fettle {

std::string_view name_of(RowKind kind) {
  switch (kind) {
    case RowKind::kTexts: return "plain texts";
    case RowKind::kConversations: return "conversations and texts";
    case RowKind::kLabelled: return "texts with labels";
    case RowKind::kPreferencePairs: return "preference pairs";
    case RowKind::kRatedReplies: return "rated replies";
  }
  throw InternalError("RowKind {} has no name", static_cast<int>(kind));
}

int64_t examples_per_row(RowKind kind) {
  return kind == RowKind::kPreferencePairs ? 2 : 1;
}

}  // namespace fettle
