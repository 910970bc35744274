#include "generate/reply.h"

#include <algorithm>
#include <optional>

#include "generate/batch_decoder.h"
#include "generate/reply_writer.h"

namespace fettle {

Reply write_reply(Generator& generator, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                  const ReplyOptions& options, const OnText& on_text) {
  generator.reserve(longest_at_first(prompt, options));
  ReplyWriter writer(tokenizer, prompt, options, generator.max_length(), on_text);
  while (writer.take(generator.logits(writer.ids()))) {
  }
  return writer.finish();
}

void write_replies(Devices& devices, OpenModel& model, const Tokenizer& tokenizer,
                   const std::vector<std::vector<int32_t>>& prompts,
                   const std::function<ReplyOptions(size_t number)>& options_of, const OnReply& on_reply) {
  const OnText go_on = [](const std::string&) { return true; };
  const int64_t at_once = std::min(model.run.eval_rows_per_device, static_cast<int64_t>(prompts.size()));
  if (at_once < 2 || !BatchDecoder::supports(model.run)) {
    Generator generator(devices, model.run, model.state);
    for (size_t i = 0; i < prompts.size(); ++i)
      on_reply(i, write_reply(generator, tokenizer, prompts[i], options_of(i), go_on));
    return;
  }
  BatchDecoder decoder(devices, model.run, model.state, at_once);
  struct Row {
    size_t number;
    ReplyWriter writer;
  };
  std::vector<std::optional<Row>> rows(static_cast<size_t>(at_once));
  auto take = [&](std::optional<Row>& row, const std::vector<float>& logits) {
    if (row->writer.take(logits)) return;
    on_reply(row->number, row->writer.finish());
    row.reset();
  };
  for (size_t begun = 0;;) {
    for (size_t r = 0; r < rows.size(); ++r)
      while (!rows[r] && begun < prompts.size()) {
        const std::vector<int32_t>& prompt = prompts[begun];
        const ReplyOptions options = options_of(begun);
        rows[r].emplace(Row{begun++, ReplyWriter(tokenizer, prompt, options, decoder.max_length(), go_on)});
        take(rows[r], decoder.join(static_cast<int64_t>(r), prompt, longest_at_first(prompt, options)));
      }
    std::vector<std::pair<int64_t, int32_t>> next;
    for (size_t r = 0; r < rows.size(); ++r)
      if (rows[r]) next.emplace_back(static_cast<int64_t>(r), rows[r]->writer.ids().back());
    if (next.empty()) return;
    const std::vector<std::vector<float>> logits = decoder.step(next);
    for (size_t i = 0; i < next.size(); ++i) take(rows[static_cast<size_t>(next[i].first)], logits[i]);
  }
}

}  // namespace fettle
