// Defines RowTokeniser, which turns one row of any format into examples: token ids with labels. Long rows are cut or
// dropped as DataSpec says.
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

#include "data/chat/chat.h"
#include "data/classes/label_reader.h"
#include "data/data_spec.h"
#include "data/example.h"
#include "data/formats.h"
#include "data/read/rows.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// The result for one row.
struct Outcome {
  std::vector<Example> examples;  // one; two for a preference pair; several for a long text or a packed row
  bool continued = false;         // parts of one long text, or the two rated replies of a pair
  std::string bad;                // why the row cannot be used; "" when it can
  int64_t truncated_from = 0;     // the row's number of tokens before it was cut; 0: not cut
  int64_t truncated_to = 0;       // the number after whole turns were left out; 0: not cut in this way
  std::string dropped;            // why the row was left out; "" when it was not
  std::string placeholder;        // a {{name}} in a reply; probably somebody forgot to fill it in
  std::string null_argument;      // the argument of a trained call that is null; perhaps a program filled it in
  bool empty = false;             // the row was dropped because it has no text or no token
  std::exception_ptr failure;     // why the run must stop, such as a token id that the model does not have
  std::string_view format;        // see Sample::format
  std::map<std::string, int64_t> tokens_by_role, trained_by_role;
  // The parts of DataSource::columns without which a row can be read, but whose columns this row lacks. The value is a
  // column of the row with a similar name; "" when there is none. nullopt: the row could not be parsed.
  std::optional<std::map<std::string, std::string>> lacks;
};

// Returns the tokens of a prompt without a chat template (Sample::Kind::kPrompted). They do not end with eos_token,
// because the reply follows.
std::vector<int32_t> plain_prompt_ids(const Tokenizer& tokenizer, const std::string& text);

class RowTokeniser {
 public:
  // Keeps `spec` and `tokenizer` by reference. If `model_vocab_size` is 0, ids are not checked. For `yes_or_no`, see
  // LabelReader.
  RowTokeniser(const DataSpec& spec, const Tokenizer& tokenizer, int64_t model_vocab_size, bool yes_or_no);

  // Tokenises the row. `where` is its "file:line". Safe to call from several threads. Never throws: the Outcome has the
  // errors.
  Outcome operator()(Row& row, const DataSource& source, const std::string& where) const;
  // Returns the chat template's counts over all rows so far.
  ChatTemplate::Counts counts() const;

 private:
  void chat(Sample& sample, const std::string& where, Outcome& outcome) const;
  Example rendered(const ChatTemplate& chat, Conversation& conversation, Preference preference,
                   const std::string& where, Outcome& outcome) const;
  Example labelled(const std::vector<ChatTemplate::Piece>& pieces, Preference preference, const std::string& where,
                   Outcome& outcome) const;
  void text(const Sample& sample, const std::string& where, Outcome& outcome) const;
  void tokens(Sample& sample, const std::string& where, Outcome& outcome) const;
  void prompted(const Sample& sample, const std::string& where, Outcome& outcome) const;
  void classified(const Row& row, const DataSource& source, const std::string& where, Outcome& outcome) const;
  bool fits(Example& example, Outcome& outcome) const;
  void check_ids(const Example& example) const;
  bool may_be_cut(int64_t length, const std::string& where, Outcome& outcome) const;
  const ChatTemplate& chat_template() const;  // the run's
  const ChatTemplate& no_template() const;    // the one that renders plain rows

  const DataSpec& spec_;
  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  std::optional<LabelReader> labels_;  // set for labelled rows
  // The first row that needs a template creates it.
  mutable std::once_flag template_made_, none_made_;
  mutable std::unique_ptr<const ChatTemplate> template_, none_;
};

}  // namespace fettle
