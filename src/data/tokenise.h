// Defines RowTokeniser: one row of any format becomes examples of token ids with labels, cut or dropped by rule.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "data/chat.h"
#include "data/classes/label_set.h"
#include "data/example.h"
#include "data/formats.h"
#include "data/preferences.h"
#include "data/read/rows.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// What became of one row.
struct Outcome {
  std::vector<Example> examples;  // one; two of a pair; several of a long text that is read on
  std::string bad;                // why it cannot be used
  int64_t truncated_from = 0;     // its tokens before it was cut
  std::string dropped;            // why it was left out
  bool empty = false;             // of the dropped: without any text or token
  std::exception_ptr failure;     // why nothing can go on, as a token id that the model does not have
  std::string_view format;        // the row's
  std::map<std::string, int64_t> tokens_by_role, trained_by_role;
};

class RowTokeniser {
 public:
  // Keeps all by reference. `model_vocab_size` 0: ids are not checked. `unlabelled`: rows of stage cls may lack a
  // label. `yes_or_no`: LabelSet's.
  RowTokeniser(const Recipe& recipe, const Tokenizer& tokenizer, int64_t model_vocab_size, bool unlabelled = false,
               bool yes_or_no = false);

  // Safe from several threads. `where` is the row's "file:line". Never throws: see Outcome.
  Outcome operator()(Row& row, const DataSource& source, const std::string& where) const;
  // What the chat template met, since the rows began.
  ChatTemplate::Counts counts() const;

 private:
  Sample sample_of(const Row& row, const DataSource& source) const;
  void chat(Sample& sample, const std::string& where, Outcome& outcome) const;
  Example rendered(std::vector<Message>& messages, const Sample& sample, Preference preference,
                   const std::string& where, Outcome& outcome) const;
  void text(const Sample& sample, const std::string& where, Outcome& outcome) const;
  void classified(const Row& row, const DataSource& source, const std::string& where, Outcome& outcome) const;
  bool fits(Example& example, Outcome& outcome) const;
  void check_ids(const Example& example) const;
  bool may_be_cut(int64_t length, const std::string& where, Outcome& outcome) const;
  const ChatTemplate& chat_template() const;

  const Recipe& recipe_;
  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  bool unlabelled_;
  std::optional<LabelSet> labels_;        // of stage cls
  mutable std::once_flag template_made_;  // by the first conversation: texts need none
  mutable std::unique_ptr<const ChatTemplate> template_;
};

}  // namespace fettle
