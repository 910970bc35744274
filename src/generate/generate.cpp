#include "generate/generate.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/standard_output.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/chosen_rows.h"
#include "data/formats.h"
#include "data/message_lists.h"
#include "data/preferences.h"
#include "data/read/media.h"
#include "data/read/rows.h"
#include "data/store/row_pipeline.h"
#include "data/tokenise.h"
#include "generate/replies/shown_reply.h"
#include "generate/session.h"

namespace fettle {
namespace {

struct Asked {
  std::vector<int32_t> ids;
  std::string where;
};

// Returns the tokens before the last trained part of the sample. Returns all tokens if no part is trained, or if the
// trained part comes first.
std::vector<int32_t> before_reply(Sample sample) {
  size_t end = sample.labels.size();
  while (end > 0 && sample.labels[end - 1] == kIgnore) --end;
  while (end > 0 && sample.labels[end - 1] != kIgnore) --end;
  if (end > 0) sample.input_ids.resize(end);
  return std::move(sample.input_ids);
}

// Returns the tokens of the sample's prompt. The prompt is everything before the last answer; for a plain text, it is
// the whole text.
std::vector<int32_t> prompt_of(const Session& session, Sample sample) {
  switch (sample.kind) {
    case Sample::Kind::kChat: {
      std::vector<Message>& messages = sample.conversation.messages;
      while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
      if (!session.has_template()) throw BadRow("a conversation needs a chat template; set `template`, and stage: sft");
      return session.prompt(std::move(sample.conversation));
    }
    case Sample::Kind::kText: return session.tokenizer().encode(sample.text, true);
    case Sample::Kind::kPrompted: return plain_prompt_ids(session.tokenizer(), sample.text);
    case Sample::Kind::kTokens: return before_reply(std::move(sample));
  }
  throw InternalError("a sample of an unknown kind");
}

// Reads the row's prompt. In stages that do not train on pairs, only a row that has no other form is read as a pair.
Sample read_prompt_of(const nlohmann::ordered_json& row, const DataSource& source, RowKind rows) {
  const bool pair = has_pair_columns(row, source);
  if (pair && (rows == RowKind::kPreferencePairs || rows == RowKind::kRatedReplies))
    return read_pair_prompt(row, source);
  try {
    return read_prompt(row, source);
  } catch (const BadRow&) {
    if (!pair) throw;
  }
  return read_pair_prompt(row, source);
}

std::vector<Asked> ask_rows(const Session& session, const DataSpec& data) {
  std::vector<Asked> all;
  for (const std::string& name : data.sets) {
    const DataSource source = find_source(name, data.dataset_dir, data.hub);
    std::vector<Asked> asked;
    const auto work = [&](Row& row, const std::string&) {
      Outcome outcome;
      try {
        row.parse();
        if (!row.bad.empty()) throw BadRow(row.bad);
        refuse_media(row.value, source);
        parse_message_lists(row.value, source, data.labels.has_value());
        Sample sample = read_prompt_of(row.value, source, data.rows);
        if (data.plain_text_rows && sample.plain) sample = without_template(std::move(sample));
        outcome.examples.emplace_back().input_ids = prompt_of(session, std::move(sample));
      } catch (const BadRow& error) {
        outcome.bad = error.what();
      } catch (...) {
        outcome.failure = std::current_exception();
      }
      return outcome;
    };
    ProgressLine progress;
    const auto take = [&](uint32_t file, int64_t line, Outcome& outcome) {
      const std::string where = row_place(source.files[file].string(), line);
      if (!outcome.bad.empty()) {
        if (data.on_bad_row != OnBadRow::kSkip) throw UserError("{}: {}", where, outcome.bad);
        return warn("{}: {}; skipped", where, outcome.bad);
      }
      asked.push_back({std::move(outcome.examples[0].input_ids), where});
      progress.show([&] { return fmt::format("data: {} rows of {}", asked.size(), source.name); });
    };
    for_each_row(source.files, data.most_rows(source).value_or(INT64_MAX), work, take, data.text_rows(source));
    std::ranges::move(chosen_items(asked, source, data), std::back_inserter(all));
  }
  return all;
}

// Writes the replies in the order of the prompts.
class Answering {
 public:
  Answering(Session& session, std::ostream& out) : session_(session), out_(out) {}

  // Writes the reply while its tokens are drawn.
  void answer(const Asked& asked) {
    session_.check_prompt(asked.ids, asked.where);
    session_.load();
    ShownReply shown = shown_reply(asked.ids);
    const Reply reply = session_.reply(asked.ids, count_++, [&](const std::string& text) {
      out_ << shown.push(text) << std::flush;
      return out_.good();
    });
    out_ << shown.finish();
    end_line(asked.ids, reply);
  }

  // Writes several replies that are computed at once. With `titled`, writes a line with the prompt's "file:line" before
  // each reply.
  void answer(std::vector<Asked> all, bool titled) {
    std::vector<std::vector<int32_t>> prompts;
    for (Asked& asked : all) {
      session_.check_prompt(asked.ids, asked.where);
      prompts.push_back(std::move(asked.ids));
    }
    std::map<size_t, Reply> ended;  // finished replies that wait for earlier ones
    size_t written = 0;
    session_.replies(prompts, count_, [&](size_t number, Reply reply) {
      ended.emplace(number, std::move(reply));
      for (; ended.contains(written); ended.erase(written++)) {
        const Reply& next = ended.at(written);
        if (titled) out_ << (written > 0 ? "\n" : "") << "==> " << all[written].where << " <==\n";
        ShownReply shown = shown_reply(prompts[written]);
        out_ << shown.push(next.text) << shown.finish();
        end_line(prompts[written], next);
      }
    });
    count_ += prompts.size();
  }
  uint64_t count() const { return count_; }

 private:
  ShownReply shown_reply(const std::vector<int32_t>& prompt) const {
    return {session_.reply_form(), session_.tokenizer(), prompt};
  }
  void end_line(const std::vector<int32_t>& prompt, const Reply& reply) {
    out_ << std::endl;
    debug("prompt: {} tokens in {:.3f} s; reply: {} tokens, {:.3f} s after the first", prompt.size(),
          reply.prompt_seconds, reply.ids.size(), reply.reply_seconds);
    check_written(out_);
  }

  Session& session_;
  std::ostream& out_;
  uint64_t count_ = 0;
};

void answer_lines(const Session& session, std::istream& in, bool together, Answering& answering) {
  int64_t number = 0;
  std::vector<Asked> all;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (is_blank(line)) continue;
    all.push_back({session.prompt(line), fmt::format("standard input, line {}", number)});
    if (!together) answering.answer(std::exchange(all, {})[0]);
  }
  if (all.size() == 1) answering.answer(all[0]);
  if (all.size() > 1) answering.answer(std::move(all), false);
}

LinesFrom standard_input() {
  if (isatty(STDIN_FILENO) == 1) return LinesFrom::kTerminal;
  struct stat about {};
  return fstat(STDIN_FILENO, &about) == 0 && S_ISREG(about.st_mode) ? LinesFrom::kFile : LinesFrom::kPipe;
}

}  // namespace

void run_generate(const Request& request, std::istream& in, LinesFrom from, std::ostream& out) {
  const GenerationSpec spec = request.generation();
  const DataSpec data = request.data();
  if (spec.prompt.empty() && request.places().has("prompt"))
    throw UserError("{}: prompt is empty; give the text to answer, or leave the key out",
                    request.places().of("prompt"));
  Session session(request, Session::Template::kIfThere);
  Answering answering(session, out);
  if (!spec.prompt.empty()) return answering.answer({session.prompt(spec.prompt), request.places().of("prompt")});
  const bool typed = from == LinesFrom::kTerminal;
  if (typed && data.sets.empty()) info("each line is a prompt; Ctrl-D ends");
  if (!typed || data.sets.empty()) answer_lines(session, in, from == LinesFrom::kFile, answering);
  if (answering.count() > 0) return;
  if (data.sets.empty())
    throw UserError("there is no prompt; give prompt=TEXT, lines on standard input, or rows with `dataset`");
  std::vector<Asked> rows = ask_rows(session, data);
  if (rows.empty()) throw UserError("dataset: {} has no row to answer", fmt::join(data.sets, ", "));
  info("no prompt: answering {} rows of dataset", rows.size());
  if (rows.size() == 1) return answering.answer(rows[0]);
  answering.answer(std::move(rows), true);
}

void run_generate(const Request& request) {
  run_generate(request, std::cin, standard_input(), std::cout);
}

}  // namespace fettle
