#include "eval/text_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace fettle {
namespace {

using Words = std::vector<std::string>;
using NgramCounts = std::map<Words, int64_t>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_stop(char c) {
  return c == '.' || c == ',';
}

// Returns the number of bytes of the white space at `at`; 0 if there is none. White space is whatever Python's
// str.split() splits at.
size_t space_at(std::string_view text, size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  if (c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f)) return 1;
  for (std::string_view wide : {"\u0085", "\u00a0", "\u1680", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"})
    if (text.substr(at).starts_with(wide)) return wide.size();
  // U+2000 to U+200A
  if (text.substr(at).starts_with("\xe2\x80") && at + 2 < text.size()) {
    const auto last = static_cast<unsigned char>(text[at + 2]);
    if (last >= 0x80 && last <= 0x8a) return 3;
  }
  return 0;
}

Words split(std::string_view text) {
  Words out;
  std::string word;
  for (size_t at = 0; at < text.size();) {
    const size_t space = space_at(text, at);
    if (space == 0) {
      word += text[at++];
      continue;
    }
    if (!word.empty()) out.push_back(std::move(word));
    word.clear();
    at += space;
  }
  if (!word.empty()) out.push_back(std::move(word));
  return out;
}

std::string_view stripped(std::string_view text) {
  size_t first = 0;
  while (first < text.size())
    if (const size_t space = space_at(text, first))
      first += space;
    else
      break;
  text.remove_prefix(first);
  for (bool cut = true; cut && !text.empty();) {
    cut = false;
    for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()) && !cut; ++bytes)
      if (space_at(text, text.size() - bytes) == bytes) text.remove_suffix(bytes), cut = true;
  }
  return text;
}

Words rouge_words(std::string_view text) {
  Words out;
  std::string word;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || is_digit(c)) {
      word += c;
    } else if (!word.empty()) {
      out.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) out.push_back(std::move(word));
  return out;
}

NgramCounts count_ngrams(const Words& words, size_t n) {
  NgramCounts out;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ++out[Words(words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i + n))];
  return out;
}

int64_t in_common(const NgramCounts& a, const NgramCounts& b) {
  int64_t out = 0;
  for (const auto& [ngram, count] : a)
    if (const auto found = b.find(ngram); found != b.end()) out += std::min(count, found->second);
  return out;
}

double f_measure(int64_t common, size_t of_reply, size_t of_reference) {
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(of_reply);
  const double recall = static_cast<double>(common) / static_cast<double>(of_reference);
  return 2 * precision * recall / (precision + recall);
}

double rouge_n(const Words& reply, const Words& reference, size_t n) {
  auto grams = [n](const Words& words) { return words.size() >= n ? words.size() - n + 1 : 0; };
  return f_measure(in_common(count_ngrams(reply, n), count_ngrams(reference, n)), std::max<size_t>(1, grams(reply)),
                   std::max<size_t>(1, grams(reference)));
}

int64_t longest_common_subsequence(const Words& a, const Words& b) {
  std::vector<int64_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    int64_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]);
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Returns whether the character is a token by itself: the space, and all ASCII punctuation except the apostrophe, dash,
// full stop and comma.
bool is_mark(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || c == ':' || c == ';' ||
         (c >= '<' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

constexpr size_t kOrder = 4;

}  // namespace

bool exact_match(std::string_view reply, const std::vector<std::string>& references) {
  return std::ranges::any_of(references, [&](const std::string& one) { return stripped(one) == stripped(reply); });
}

Rouge rouge(std::string_view reply, const std::vector<std::string>& references) {
  Rouge best;
  const Words said = rouge_words(reply);
  for (const std::string& text : references) {
    const Words wanted = rouge_words(text);
    best.rouge1 = std::max(best.rouge1, rouge_n(said, wanted, 1));
    best.rouge2 = std::max(best.rouge2, rouge_n(said, wanted, 2));
    best.rougeL =
        std::max(best.rougeL, f_measure(longest_common_subsequence(wanted, said), said.size(), wanted.size()));
  }
  return best;
}

std::vector<std::string> bleu_tokens(std::string_view text) {
  std::string line(text);
  line = replace_all(line, "<skipped>", "");
  line = replace_all(line, "-\n", "");
  line = replace_all(line, "\n", " ");
  for (const auto& [entity, mark] : {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}})
    line = replace_all(line, entity, mark);
  line = " " + line + " ";
  std::string apart;
  for (char c : line) apart += is_mark(c) ? std::string{' ', c, ' '} : std::string(1, c);
  // Puts spaces around these characters, in this order: a full stop or comma without a digit before it; a full stop or
  // comma without a digit after it; and a dash with a digit before it.
  std::string behind;
  for (size_t i = 0; i < apart.size(); ++i) {
    behind += apart[i];
    if (is_digit(apart[i]) || i + 1 == apart.size() || !is_stop(apart[i + 1])) continue;
    behind += std::string{' ', apart[++i], ' '};
  }
  std::string before;
  for (size_t i = 0; i < behind.size(); ++i) {
    if (!is_stop(behind[i]) || i + 1 == behind.size() || is_digit(behind[i + 1])) {
      before += behind[i];
      continue;
    }
    before += std::string{' ', behind[i], ' ', behind[i + 1]};
    ++i;
  }
  std::string out;
  for (size_t i = 0; i < before.size(); ++i) {
    out += before[i];
    if (is_digit(before[i]) && i + 1 < before.size() && before[i + 1] == '-') out += " - ", ++i;
  }
  return split(out);
}

double bleu(const std::vector<std::string>& replies, const std::vector<std::vector<std::string>>& references) {
  internal_check(replies.size() == references.size(), "bleu: {} replies, but references for {}", replies.size(),
                 references.size());
  std::array<int64_t, kOrder> right{}, total{};
  int64_t said_length = 0, wanted_length = 0;
  for (size_t row = 0; row < replies.size(); ++row) {
    const Words said = bleu_tokens(replies[row]);
    std::vector<Words> wanted;
    for (const std::string& one : references[row]) wanted.push_back(bleu_tokens(one));
    internal_check(!wanted.empty(), "bleu: row {} has no reference", row);
    const auto length = static_cast<int64_t>(said.size());
    auto distance = [length](const Words& one) {
      const auto other = static_cast<int64_t>(one.size());
      return std::pair(std::abs(other - length), other);
    };
    said_length += length;
    wanted_length += std::ranges::min(wanted, {}, distance).size();
    for (size_t n = 1; n <= kOrder; ++n) {
      NgramCounts most;  // for each n-gram, its largest count in one reference
      for (const Words& one : wanted)
        for (const auto& [ngram, count] : count_ngrams(one, n)) most[ngram] = std::max(most[ngram], count);
      right[n - 1] += in_common(count_ngrams(said, n), most);
      total[n - 1] += std::max<int64_t>(0, length - static_cast<int64_t>(n) + 1);
    }
  }
  if (std::ranges::all_of(right, [](int64_t count) { return count == 0; })) return 0;
  double logs = 0, smooth = 1;
  for (size_t n = 0; n < kOrder; ++n) {
    if (total[n] == 0) return 0;
    if (right[n] == 0) smooth *= 2;
    const double share = right[n] > 0 ? static_cast<double>(right[n]) : 1 / smooth;
    logs += std::log(100 * share / static_cast<double>(total[n])) / kOrder;
  }
  const double brevity =
      said_length < wanted_length ? 1 - static_cast<double>(wanted_length) / static_cast<double>(said_length) : 0;
  return std::exp(brevity + logs);
}

}  // namespace fettle
