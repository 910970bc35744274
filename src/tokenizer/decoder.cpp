#include "tokenizer/decoder.h"

#include <charconv>
#include <map>

#include "base/text.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

using Tokens = std::vector<std::string>;

std::string join(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

// Returns a decoder that joins the bytes of all tokens into one text, and replaces invalid UTF-8. A token with
// characters outside the byte alphabet (an added token) stays unchanged.
Decoder read_byte_level_decoder(const JsonField& field) {
  field.expect_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return [](Tokens& tokens) {
    std::string bytes, all;
    for (const std::string& token : tokens) all += from_alphabet(token, bytes) ? bytes : token;
    tokens = {replace_invalid_utf8(all)};
  };
}

// Returns a decoder that replaces neighbouring tokens such as <0xE4> by the text of their bytes. If the bytes are not
// UTF-8, each of these tokens becomes U+FFFD.
Decoder read_byte_fallback(const JsonField& field) {
  field.expect_only({"type"});
  return [](Tokens& tokens) {
    Tokens result;
    std::string bytes;
    auto flush = [&] {
      if (bytes.empty()) return;
      if (is_valid_utf8(bytes)) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), std::string(kReplacementText));
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      unsigned byte = 0;
      const bool spelled = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
                           std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
      if (spelled) {
        bytes.push_back(static_cast<char>(byte));
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  };
}

Decoder read_fuse(const JsonField& field) {
  field.expect_only({"type"});
  return [](Tokens& tokens) { tokens = {join(tokens)}; };
}

Decoder read_strip_decoder(const JsonField& field) {
  field.expect_only({"type", "content", "start", "stop"});
  const std::string content = field.at("content").string();
  const int64_t start = field.at("start").integer();
  const int64_t stop = field.at("stop").integer();
  if (content.empty()) field.fail("content is empty, wanted one character");
  return [=](Tokens& tokens) {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.erase(token.size() - content.size());
    }
  };
}

Decoder read_replace_decoder(const JsonField& field) {
  field.expect_only({"type", "pattern", "content"});
  return [pattern = Regex::of_field(field.at("pattern")), content = field.at("content").string()](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string out;
      pattern.cover(token, [&](size_t start, size_t end, bool is_match) {
        out += is_match ? std::string_view(content) : std::string_view(token).substr(start, end - start);
      });
      token = std::move(out);
    }
  };
}

Decoder read_metaspace_decoder(const JsonField& field) {
  field.expect_only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const std::string mark = field.at("replacement").string();
  const bool prefix = field.boolean_or("add_prefix_space", true);
  const bool strips = prefix && field.string_or("prepend_scheme", "always") != "never";
  return [=](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = replace_all(tokens[i], mark, i == 0 && strips ? "" : " ");
  };
}

Decoder read_word_piece(const JsonField& field) {
  field.expect_only({"type", "prefix", "cleanup"});
  static constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  return [prefix = field.string_or("prefix", "##"), cleanup = field.boolean_or("cleanup", true)](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i != 0 && tokens[i].starts_with(prefix)) {
        tokens[i].erase(0, prefix.size());
      } else if (i != 0) {
        tokens[i].insert(0, " ");
      }
      if (!cleanup) continue;
      for (const auto& [from, to] : kCleanups) tokens[i] = replace_all(tokens[i], from, to);
    }
  };
}

Decoder read_bpe_decoder(const JsonField& field) {
  field.expect_only({"type", "suffix"});
  return [suffix = field.string_or("suffix", "</w>")](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  };
}

Decoder read_sequence_decoder(const JsonField& field) {
  field.expect_only({"type", "decoders"});
  std::vector<Decoder> steps;
  for (const JsonField& step : field.at("decoders").elements()) steps.push_back(read_decoder(step));
  return [steps](Tokens& tokens) {
    for (const Decoder& step : steps) step(tokens);
  };
}

using ReadDecoder = Decoder (*)(const JsonField&);

const std::map<std::string, ReadDecoder>& decoder_readers() {
  static const std::map<std::string, ReadDecoder> readers = {
      {"BPEDecoder", read_bpe_decoder},       {"ByteFallback", read_byte_fallback},
      {"ByteLevel", read_byte_level_decoder}, {"Fuse", read_fuse},
      {"Metaspace", read_metaspace_decoder},  {"Replace", read_replace_decoder},
      {"Sequence", read_sequence_decoder},    {"Strip", read_strip_decoder},
      {"WordPiece", read_word_piece},
  };
  return readers;
}

}  // namespace

Decoder read_decoder(const JsonField& field) {
  return read_by_type(field, "decoder", decoder_readers());
}

}  // namespace fettle
