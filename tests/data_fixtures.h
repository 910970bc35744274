// Defines TestTokenizer, which makes small tokenizers: one token per byte, and the special tokens that a test needs.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temp_folder.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct TestTokenizer {
  std::vector<std::string> special = {"<s>", "</s>"};
  std::string bos = "<s>", eos = "</s>";
  std::string chat_template = {};
  bool adds_bos = false;  // encode() with add_special_tokens adds `bos`
  std::vector<std::string> merges = {};

  Tokenizer open() const {
    const TempFolder folder;
    save(folder.path());
    return Tokenizer::open(folder.path());
  }

  void save(const std::filesystem::path& folder) const {
    // GPT-2's byte alphabet: printable bytes are themselves, the others become U+0100 and up.
    nlohmann::json vocabulary = nlohmann::json::object();
    int next = 256, id = 0;
    auto utf8 = [](int code) {
      if (code < 0x80) return std::string(1, static_cast<char>(code));
      return std::string{static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    };
    for (int byte = 0; byte < 256; ++byte) {
      const bool shown = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      vocabulary[utf8(shown ? byte : next++)] = id++;
    }
    for (const std::string& merge : merges) {
      std::string joined = merge;
      joined.erase(joined.find(' '), 1);
      vocabulary[joined] = id++;
    }
    nlohmann::json added = nlohmann::json::array(), decoder = nlohmann::json::object();
    for (const std::string& token : special) {
      added.push_back({{"id", id},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
      vocabulary[token] = id++;
    }
    nlohmann::json post = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    if (adds_bos)
      post = {{"type", "TemplateProcessing"},
              {"single",
               {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
              {"pair",
               {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}},
                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                {{"SpecialToken", {{"id", bos}, {"type_id", 1}}}},
                {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
              {"special_tokens", {{bos, {{"id", bos}, {"ids", {vocabulary[bos]}}, {"tokens", {bos}}}}}}};
    const nlohmann::json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    const nlohmann::json tokenizer = {{"version", "1.0"},
                                      {"truncation", nullptr},
                                      {"padding", nullptr},
                                      {"added_tokens", added},
                                      {"normalizer", nullptr},
                                      {"pre_tokenizer", byte_level},
                                      {"post_processor", post},
                                      {"decoder", byte_level},
                                      {"model",
                                       {{"type", "BPE"},
                                        {"dropout", nullptr},
                                        {"unk_token", nullptr},
                                        {"continuing_subword_prefix", nullptr},
                                        {"end_of_word_suffix", nullptr},
                                        {"fuse_unk", false},
                                        {"byte_fallback", false},
                                        {"ignore_merges", false},
                                        {"vocab", vocabulary},
                                        {"merges", merges}}}};
    nlohmann::json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
    if (!bos.empty()) config["bos_token"] = bos;
    if (!eos.empty()) config["eos_token"] = eos;
    if (!chat_template.empty()) config["chat_template"] = chat_template;
    std::ofstream(folder / "tokenizer.json") << tokenizer.dump();
    std::ofstream(folder / "tokenizer_config.json") << config.dump();
  }
};

}  // namespace fettle
