#include "generate/reply.h"

#include <algorithm>

namespace fettle {
namespace {

constexpr int64_t kMostReserved = 1024;  // the most positions that the cache reserves for a reply at its start

}  // namespace

Reply write_reply(Generator& generator, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                  const ReplyOptions& options, const OnText& on_text) {
  generator.reserve(static_cast<int64_t>(prompt.size()) + std::min(options.max_new_tokens, kMostReserved));
  Reply reply;
  StreamDecoder decoder(tokenizer, true);
  auto tell = [&](const std::string& text) {
    reply.text += text;
    return on_text(text);
  };
  for (std::vector<int32_t> ids = prompt;;) {
    if (static_cast<int64_t>(reply.ids.size()) >= options.max_new_tokens) {
      reply.end = ReplyEnd::kMaxNewTokens;
      break;
    }
    if (!reply.ids.empty() && static_cast<int64_t>(ids.size()) > generator.max_length()) {
      reply.end = ReplyEnd::kMaxPositions;
      break;
    }
    const int32_t id = sample(generator.logits(ids), options.sampling, ids.size());
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) break;
    ids.push_back(id);
    reply.ids.push_back(id);
    if (!tell(decoder.push(id))) {
      reply.end = ReplyEnd::kCaller;
      break;
    }
  }
  tell(decoder.finish());
  return reply;
}

}  // namespace fettle
