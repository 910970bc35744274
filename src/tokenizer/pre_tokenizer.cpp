#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <map>

#include "tokenizer/text/regex.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// How a split treats the delimiters that it finds.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior read_behavior(const JsonField& field) {
  static const std::map<std::string, Behavior> names = {{"Removed", Behavior::kRemoved},
                                                        {"Isolated", Behavior::kIsolated},
                                                        {"MergedWithPrevious", Behavior::kMergedWithPrevious},
                                                        {"MergedWithNext", Behavior::kMergedWithNext},
                                                        {"Contiguous", Behavior::kContiguous}};
  const auto found = names.find(field.string());
  if (found != names.end()) return found->second;
  field.fail("found '{}', wanted Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", field.string());
}

struct Stretch {
  size_t start;
  size_t end;
  bool is_match;
};

// Joins neighbouring stretches as `behavior` says, and emits them as parts of `piece`.
template <typename Emit>
void emit_joined(const Piece& piece, const std::vector<Stretch>& stretches, Behavior behavior, Emit& emit) {
  std::vector<Stretch> joined;
  bool previous_match = false;
  if (behavior == Behavior::kMergedWithNext) {
    for (auto it = stretches.rbegin(); it != stretches.rend(); ++it) {
      if (it->is_match && !previous_match && !joined.empty()) {
        joined.back().start = it->start;
      } else {
        joined.push_back(*it);
      }
      previous_match = it->is_match;
    }
    std::reverse(joined.begin(), joined.end());
  } else {
    for (const Stretch& stretch : stretches) {
      const bool join =
          behavior == Behavior::kContiguous ? stretch.is_match == previous_match : stretch.is_match && !previous_match;
      if (join && !joined.empty()) {
        joined.back().end = stretch.end;
      } else {
        joined.push_back(stretch);
      }
      previous_match = stretch.is_match;
    }
  }
  for (const Stretch& stretch : joined) emit(part_of(piece, stretch.start, stretch.end));
}

// Returns a step that splits each piece. `cover(text, visit)` finds the delimiters: it calls visit(start, end,
// is_match) for the matches and for the text between them, in order.
template <typename Cover>
PreTokenizer::Step split_by(Cover cover, Behavior behavior) {
  return [cover, behavior](Pieces& pieces) {
    pieces.split([&](const Piece& piece, auto& emit) {
      if (behavior == Behavior::kIsolated || behavior == Behavior::kRemoved) {
        cover(piece.text, [&](size_t start, size_t end, bool is_match) {
          if (!is_match || behavior == Behavior::kIsolated) emit(part_of(piece, start, end));
        });
        return;
      }
      std::vector<Stretch> stretches;
      cover(piece.text, [&](size_t start, size_t end, bool is_match) { stretches.push_back({start, end, is_match}); });
      emit_joined(piece, stretches, behavior, emit);
    });
  };
}

// Treats each character for which `is_match` is true as a delimiter.
template <bool (*is_match)(char32_t)>
void cover_chars(std::string_view text, const std::function<void(size_t, size_t, bool)>& visit) {
  size_t covered = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (!is_match(next_char(text, at))) continue;
    if (covered < start) visit(covered, start, false);
    visit(start, at, true);
    covered = at;
  }
  if (covered < text.size()) visit(covered, text.size(), false);
}

auto cover_by(Regex pattern, bool invert) {
  return [pattern, invert](std::string_view text, auto visit) {
    pattern.cover(text, [&](size_t start, size_t end, bool is_match) { visit(start, end, is_match != invert); });
  };
}

PreTokenizer of_step(PreTokenizer::Step step) {
  return {{std::move(step)}};
}

PreTokenizer read_byte_level_pre_tokenizer(const JsonField& field) {
  field.expect_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  PreTokenizer result;
  if (field.boolean_or("add_prefix_space", true)) {
    result.steps.push_back([](Pieces& pieces) {
      pieces.split([&](const Piece& piece, auto& emit) {
        if (piece.text[0] == ' ') return emit(piece);
        const size_t start_bytes = piece.at_start() ? piece.start_bytes + 1 : 0;
        emit(Piece{pieces.own(std::string(1, ' ').append(piece.text)), Piece::kNoId, start_bytes});
      });
    });
  }
  if (field.boolean_or("use_regex", true)) {
    result.steps.push_back(split_by(cover_by(Regex(kGpt2Pattern, "GPT-2"), false), Behavior::kIsolated));
  }
  result.to_bytes = true;
  return result;
}

PreTokenizer read_split(const JsonField& field) {
  field.expect_only({"type", "pattern", "behavior", "invert"});
  return of_step(split_by(cover_by(Regex::of_field(field.at("pattern")), field.boolean_or("invert", false)),
                          read_behavior(field.at("behavior"))));
}

PreTokenizer read_digits(const JsonField& field) {
  field.expect_only({"type", "individual_digits"});
  return of_step(split_by(cover_chars<is_numeric>,
                          field.boolean_or("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous));
}

PreTokenizer read_punctuation(const JsonField& field) {
  field.expect_only({"type", "behavior"});
  const auto behavior = field.find("behavior");
  return of_step(split_by(cover_chars<is_punctuation>, behavior ? read_behavior(*behavior) : Behavior::kIsolated));
}

PreTokenizer read_whitespace_split(const JsonField& field) {
  field.expect_only({"type"});
  return of_step(split_by(cover_chars<is_white_space>, Behavior::kRemoved));
}

// Returns a pre-tokenizer that cuts a text into sequences of word characters, and sequences of characters that are
// neither word characters nor white space. Drops the white space.
PreTokenizer read_whitespace(const JsonField& field) {
  field.expect_only({"type"});
  return of_step([](Pieces& pieces) {
    auto kind_of = [](char32_t c) { return is_word(c) ? 2 : is_white_space(c) ? 0 : 1; };
    pieces.split([&](const Piece& piece, auto& emit) {
      size_t start = 0;
      int kind = 0;
      for (size_t at = 0; at < piece.text.size();) {
        const size_t before = at;
        const int next = kind_of(next_char(piece.text, at));
        if (next == kind) continue;
        if (kind != 0) emit(part_of(piece, start, before));
        start = before;
        kind = next;
      }
      if (kind != 0) emit(part_of(piece, start, piece.text.size()));
    });
  });
}

PreTokenizer read_bert_pre_tokenizer(const JsonField& field) {
  field.expect_only({"type"});
  return {{split_by(cover_chars<is_white_space>, Behavior::kRemoved),
           split_by(cover_chars<is_punctuation>, Behavior::kIsolated)}};
}

PreTokenizer read_metaspace_pre_tokenizer(const JsonField& field) {
  field.expect_only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string mark = field.at("replacement").string();
  const bool prefix = field.boolean_or("add_prefix_space", true);
  const std::string scheme = prefix ? field.string_or("prepend_scheme", "always") : "never";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    field.at("prepend_scheme").fail("found '{}', wanted always, first or never", scheme);
  }
  PreTokenizer result = of_step([mark, scheme](Pieces& pieces) {
    pieces.transform([&](std::string& text, const Piece& piece) {
      std::string marked;
      marked.reserve(text.size() * 2);
      for (char c : text) c == ' ' ? void(marked += mark) : marked.push_back(c);
      const bool prepend = scheme == "always" || (scheme == "first" && piece.at_start());
      if (prepend && !marked.starts_with(mark)) marked.insert(0, mark);
      text = std::move(marked);
    });
  });
  result.asks_for_start = scheme == "first";
  if (field.boolean_or("split", true)) {
    result.steps.push_back(split_by(cover_by(Regex::of_literal(mark), false), Behavior::kMergedWithNext));
  }
  return result;
}

PreTokenizer read_sequence_pre_tokenizer(const JsonField& field) {
  field.expect_only({"type", "pretokenizers"});
  PreTokenizer result;
  for (const JsonField& step : field.at("pretokenizers").elements()) {
    if (result.to_bytes) result.steps.push_back(spell_in_alphabet);
    PreTokenizer next = read_pre_tokenizer(step);
    for (PreTokenizer::Step& each : next.steps) result.steps.push_back(std::move(each));
    result.to_bytes = next.to_bytes;
    result.asks_for_start |= next.asks_for_start;
  }
  return result;
}

using ReadPreTokenizer = PreTokenizer (*)(const JsonField&);

const std::map<std::string, ReadPreTokenizer>& pre_tokenizer_readers() {
  static const std::map<std::string, ReadPreTokenizer> readers = {
      {"BertPreTokenizer", read_bert_pre_tokenizer},
      {"ByteLevel", read_byte_level_pre_tokenizer},
      {"Digits", read_digits},
      {"Metaspace", read_metaspace_pre_tokenizer},
      {"Punctuation", read_punctuation},
      {"Sequence", read_sequence_pre_tokenizer},
      {"Split", read_split},
      {"Whitespace", read_whitespace},
      {"WhitespaceSplit", read_whitespace_split},
  };
  return readers;
}

}  // namespace

PreTokenizer read_pre_tokenizer(const JsonField& field) {
  return read_by_type(field, "pre_tokenizer", pre_tokenizer_readers());
}

PreTokenizer::Step cut_before_runs(std::string mark) {
  return [mark = std::move(mark)](Pieces& pieces) {
    pieces.split([&](const Piece& piece, auto& emit) {
      size_t start = 0;
      size_t run_end = 0;  // the end of the last mark found
      for (size_t at = 0; (at = piece.text.find(mark, at)) != std::string_view::npos; run_end = at += mark.size()) {
        if (at == run_end) continue;
        emit(part_of(piece, start, at));
        start = at;
      }
      emit(part_of(piece, start, piece.text.size()));
    });
  };
}

void spell_in_alphabet(Pieces& pieces) {
  pieces.transform([](std::string& text, const Piece&) { text = to_alphabet(text); });
}

}  // namespace fettle
