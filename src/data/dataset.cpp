#include "data/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <unordered_set>

#include "base/error.h"
#include "data/chat.h"
#include "data/dataset_info.h"
#include "data/formats.h"
#include "data/order.h"
#include "data/rows.h"

namespace fettle {
namespace {

constexpr size_t kBlock = 4096;  // rows that are in memory as JSON at a time
constexpr size_t kNotesOfAKind = 5;
constexpr uint64_t kSampleStream = uint64_t{1} << 62;
constexpr uint64_t kSplitStream = (uint64_t{1} << 62) + 1;

// Runs body(0..count-1) on all cores. The failure of the lowest index is thrown, whatever ran first.
void for_all(size_t count, const std::function<void(size_t)>& body) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        body(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
  };
  std::vector<std::thread> threads;
  for (size_t n = 1; n < std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), count); ++n)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// What became of one row.
struct Outcome {
  std::vector<Example> examples;
  std::string bad;             // why it cannot be used
  int64_t truncated_from = 0;  // its tokens before it was cut
  std::string dropped;         // why it was left out
  bool empty = false;
  std::map<std::string, int64_t> tokens_by_role, trained_by_role;
};

uint64_t digest(const Example& example) {
  const uint64_t ids = XXH3_64bits(example.input_ids.data(), example.input_ids.size() * sizeof(int32_t));
  return XXH3_64bits_withSeed(example.labels.data(), example.labels.size() * sizeof(int32_t), ids);
}

class Loader {
 public:
  Loader(const Recipe& recipe, const Tokenizer& tokenizer, int64_t model_vocab_size, DataReport& report)
      : recipe_(recipe), tokenizer_(tokenizer), vocab_size_(model_vocab_size), report_(report) {}

  std::vector<Example> load(const std::vector<std::string>& names) {
    std::vector<Example> all;
    for (const std::string& name : names) {
      std::vector<Example> examples = load_source(find_source(name, recipe_.dataset_dir));
      all.insert(all.end(), std::make_move_iterator(examples.begin()), std::make_move_iterator(examples.end()));
    }
    finish(names, all);
    return all;
  }

 private:
  std::vector<Example> load_source(const DataSource& source) {
    std::vector<Example> out;
    std::vector<Row> block;
    int64_t rows = 0;
    const int64_t most = recipe_.max_samples.value_or(INT64_MAX);
    RowSink sink;
    sink.row = [&](Row row) {
      if (rows >= most) return false;
      ++rows;
      block.push_back(std::move(row));
      if (block.size() == kBlock) process(block, source, out);
      return rows < most;
    };
    sink.bad = [&](const std::string& where, const std::string& why) {
      // Rows before it come first, so that the first broken row of the file is the one that is named.
      process(block, source, out);
      ++report_.rows;
      bad_row(where, why);
    };
    for (const auto& file : source.files) {
      if (rows >= most) break;
      read_rows(file, sink);
    }
    process(block, source, out);
    if (source.num_samples) out = sampled(std::move(out), *source.num_samples);
    return out;
  }

  // As many examples as asked for: all as often as they fit, the rest chosen by the seed; in the order of the file.
  std::vector<Example> sampled(std::vector<Example> all, int64_t wanted) const {
    const auto count = static_cast<int64_t>(all.size());
    std::vector<Example> out;
    if (count == 0) return out;
    for (int64_t whole = 0; whole < wanted / count; ++whole) out.insert(out.end(), all.begin(), all.end());
    std::vector<int64_t> rest;
    for (int64_t i = 0; i < wanted % count; ++i)
      rest.push_back(permuted_index(i, count, static_cast<uint64_t>(recipe_.seed), kSampleStream));
    std::sort(rest.begin(), rest.end());
    for (int64_t i : rest) out.push_back(all[static_cast<size_t>(i)]);
    return out;
  }

  void process(std::vector<Row>& block, const DataSource& source, std::vector<Example>& out) {
    std::vector<Outcome> outcomes(block.size());
    std::vector<Sample> samples(block.size());
    for_all(block.size(), [&](size_t i) {
      try {
        samples[i] = read_sample(block[i], source);
      } catch (const BadRow& error) {
        outcomes[i].bad = error.what();
      }
    });
    for (size_t i = 0; i < block.size() && !template_ && recipe_.stage != "pt"; ++i)
      if (outcomes[i].bad.empty() && samples[i].kind == Sample::Kind::kChat)
        template_.emplace(recipe_.template_name, tokenizer_);
    for_all(block.size(), [&](size_t i) {
      if (outcomes[i].bad.empty()) tokenise(samples[i], block[i].source, outcomes[i]);
    });
    for (size_t i = 0; i < block.size(); ++i) take(outcomes[i], block[i].source, out);
    block.clear();
  }

  void tokenise(Sample& sample, const std::string& where, Outcome& outcome) const {
    switch (sample.kind) {
      case Sample::Kind::kChat: return chat(sample, where, outcome);
      case Sample::Kind::kText: return text(sample, where, outcome);
      case Sample::Kind::kTokens: {
        outcome.tokens_by_role["tokens"] = static_cast<int64_t>(sample.input_ids.size());
        return fit({std::move(sample.input_ids), std::move(sample.labels), where}, "tokens", outcome);
      }
    }
  }

  void chat(Sample& sample, const std::string& where, Outcome& outcome) const {
    if (recipe_.stage == "pt") {
      outcome.bad = "stage pt trains plain text (a column `text` or `content`), this is a conversation; use stage: sft";
      return;
    }
    auto& messages = sample.messages;
    if (!recipe_.default_system.empty() && messages[0].role != "system")
      messages.insert(messages.begin(), {.role = "system", .content = recipe_.default_system});
    if (recipe_.mask_history) {
      bool last = true;
      for (auto message = messages.rbegin(); message != messages.rend(); ++message)
        if (message->role == "assistant") message->train = std::exchange(last, false) && message->train;
    }
    Example example;
    example.source = where;
    try {
      for (const ChatTemplate::Piece& piece : template_->render(messages, sample.tools_json)) {
        const bool train = piece.trained || (recipe_.train_on_prompt && piece.role != "assistant");
        // What cutoff_len cuts off is not counted.
        const int64_t room = std::max<int64_t>(0, recipe_.cutoff_len - example.length());
        const int64_t kept = std::min(room, static_cast<int64_t>(piece.ids.size()));
        outcome.tokens_by_role[piece.role] += kept;
        if (train) outcome.trained_by_role[piece.role] += kept;
        example.input_ids.insert(example.input_ids.end(), piece.ids.begin(), piece.ids.end());
        if (train)
          example.labels.insert(example.labels.end(), piece.ids.begin(), piece.ids.end());
        else
          example.labels.resize(example.input_ids.size(), kIgnore);
      }
    } catch (const UserError& error) {
      outcome.bad = error.what();
      return;
    }
    fit(std::move(example), "", outcome);
  }

  void text(const Sample& sample, const std::string& where, Outcome& outcome) const {
    if (sample.text.empty()) {
      outcome.dropped = "the text is empty";
      outcome.empty = true;
      return;
    }
    std::vector<int32_t> ids = tokenizer_.encode(sample.text, true);
    const auto bos = tokenizer_.bos_id(), eos = tokenizer_.eos_id();
    if (bos && ids.size() > 1 && ids[0] == *bos && ids[1] == *bos) ids.erase(ids.begin());
    if (eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
    outcome.tokens_by_role["text"] = static_cast<int64_t>(ids.size());
    const auto most = static_cast<size_t>(recipe_.cutoff_len);
    if (recipe_.stage != "pt" || ids.size() <= most) return fit({ids, ids, where}, "text", outcome);
    // Long texts are read on in further rows.
    for (size_t at = 0; at + 1 < ids.size(); at += most) {
      const std::vector<int32_t> part(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                      ids.begin() + static_cast<std::ptrdiff_t>(std::min(at + most, ids.size())));
      fit({part, part, where}, "text", outcome);
    }
  }

  // Checks the ids, cuts what is too long and keeps what has something to train. `role` is counted when not empty.
  void fit(Example example, const std::string& role, Outcome& outcome) const {
    for (int32_t id : example.input_ids)
      if (vocab_size_ > 0 && id >= vocab_size_)
        throw UserError(
            "{}: token id {} ('{}') is beyond the model's vocabulary of {}; the tokenizer does not belong to "
            "this model, or the model's embedding was never made larger for added tokens",
            example.source, id, tokenizer_.token(id), vocab_size_);
    if (example.length() > recipe_.cutoff_len) {
      if (recipe_.overlength == "error")
        throw UserError("{}: {} tokens are more than cutoff_len {}; raise it, or choose overlength: cut or drop",
                        example.source, example.length(), recipe_.cutoff_len);
      if (recipe_.overlength == "drop") {
        outcome.dropped = fmt::format("{} tokens are more than cutoff_len {}", example.length(), recipe_.cutoff_len);
        return;
      }
      outcome.truncated_from = example.length();
      example.input_ids.resize(static_cast<size_t>(recipe_.cutoff_len));
      example.labels.resize(static_cast<size_t>(recipe_.cutoff_len));
    }
    if (example.trained_tokens() == 0) {
      outcome.dropped =
          outcome.truncated_from ? "cut to cutoff_len, it has no trained token left" : "no token is trained";
      return;
    }
    if (!role.empty()) outcome.trained_by_role[role] += example.trained_tokens();
    outcome.examples.push_back(std::move(example));
  }

  void take(Outcome& outcome, const std::string& where, std::vector<Example>& out) {
    ++report_.rows;
    if (!outcome.bad.empty()) return bad_row(where, outcome.bad);
    if (!outcome.dropped.empty()) {
      ++report_.dropped;
      report_.empty += outcome.empty;
      note("dropped", where, outcome.dropped);
      if (outcome.examples.empty()) return;
    }
    if (outcome.truncated_from) {
      ++report_.truncated;
      note("cut", where, fmt::format("{} tokens to cutoff_len {}", outcome.truncated_from, recipe_.cutoff_len));
    }
    for (const auto& [role, count] : outcome.tokens_by_role) report_.tokens_by_role[role] += count;
    for (const auto& [role, count] : outcome.trained_by_role) report_.trained_by_role[role] += count;
    for (Example& example : outcome.examples) {
      ++report_.examples;
      if (!seen_.insert(digest(example)).second) {
        ++report_.duplicates;
        note("duplicate", where, "an earlier row has the same tokens");
      }
      report_.tokens += example.length();
      report_.trained_tokens += example.trained_tokens();
      out.push_back(std::move(example));
    }
  }

  void bad_row(const std::string& where, const std::string& why) {
    if (recipe_.on_bad_row != "skip")
      throw UserError("{}: {}\n(`on_bad_row: skip` leaves such rows out and counts them)", where, why);
    ++report_.bad_rows;
    note("skipped", where, why);
  }

  void note(const std::string& kind, const std::string& where, const std::string& what) {
    if (++notes_[kind] <= kNotesOfAKind) report_.notes.push_back(fmt::format("{}: {}: {}", kind, where, what));
  }

  void finish(const std::vector<std::string>& names, const std::vector<Example>& all) {
    for (const auto& [kind, count] : notes_)
      if (count > kNotesOfAKind) report_.notes.push_back(fmt::format("{}: {} more rows", kind, count - kNotesOfAKind));
    if (template_) {
      const ChatTemplate::Counts counts = template_->counts();
      if (counts.rewritten)
        report_.notes.push_back(
            fmt::format("template: {} earlier turns are shown in another way than when they were the "
                        "last (as templates do that drop thinking)",
                        counts.rewritten));
      if (counts.prompt_thinks)
        report_.notes.push_back(
            fmt::format("template: {} prompts open a thinking block that the rows do not have", counts.prompt_thinks));
      if (counts.without_end)
        report_.notes.push_back(
            fmt::format("template: {} trained turns end without an end-of-turn token: the model will "
                        "not learn to stop there",
                        counts.without_end));
    }
    if (!all.empty()) return;
    std::string why;
    for (const std::string& one : report_.notes) why += "\n  " + one;
    throw UserError("{}: of {} rows none has a trained token left ({} dropped, {} bad){}", fmt::join(names, ", "),
                    report_.rows, report_.dropped, report_.bad_rows, why);
  }

  const Recipe& recipe_;
  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  DataReport& report_;
  std::optional<ChatTemplate> template_;
  std::map<std::string, size_t> notes_;
  std::unordered_set<uint64_t> seen_;
};

// Moves the share or count `val_size` of the examples, chosen by the seed, from `train` to the result.
std::vector<Example> split_off(std::vector<Example>& train, double val_size, uint64_t seed) {
  const auto count = static_cast<int64_t>(train.size());
  const auto wanted = static_cast<int64_t>(val_size < 1 ? std::ceil(val_size * static_cast<double>(count)) : val_size);
  if (wanted >= count) throw UserError("val_size: {} leaves nothing to train of {} examples", val_size, count);
  std::vector<bool> chosen(train.size());
  for (int64_t i = 0; i < wanted; ++i) chosen[static_cast<size_t>(permuted_index(i, count, seed, kSplitStream))] = true;
  std::vector<Example> kept, eval;
  for (size_t i = 0; i < train.size(); ++i) (chosen[i] ? eval : kept).push_back(std::move(train[i]));
  train = std::move(kept);
  return eval;
}

}  // namespace

Datasets load_datasets(const Recipe& recipe, const Tokenizer& tokenizer, int64_t model_vocab_size) {
  if (recipe.dataset.empty()) throw UserError("dataset: is missing; give a file, or a name of dataset_info.json");
  Datasets data;
  data.train = Loader(recipe, tokenizer, model_vocab_size, data.report).load(recipe.dataset);
  if (!recipe.eval_dataset.empty())
    data.eval = Loader(recipe, tokenizer, model_vocab_size, data.eval_report).load(recipe.eval_dataset);
  else if (recipe.val_size > 0)
    data.eval = split_off(data.train, recipe.val_size, static_cast<uint64_t>(recipe.seed));
  return data;
}

}  // namespace fettle
