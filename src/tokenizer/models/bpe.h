// Defines Bpe: byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909), over characters or over bytes.
//
// A word starts as its characters; of all neighbours that a merge joins, those of the lowest rank (leftmost first)
// are joined, until no merge applies.
#pragma once

#include <array>

#include "tokenizer/models/model.h"

namespace fettle {

// The merges by pair: an open-addressing table, read at every step of every word.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = UINT32_MAX;  // UINT32_MAX: there is none
    int32_t id = 0;
  };

  explicit MergeTable(size_t count);
  // The last merge of a pair holds.
  void add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Merge merge;
  };
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;
};

class Bpe : public TokenModel {
 public:
  // Reads a `model` of type BPE. Throws UserError for merges of tokens that the vocabulary lacks.
  static std::unique_ptr<Bpe> read(const JsonField& field);

  struct Options {
    std::optional<int32_t> unk_id;
    bool fuse_unk = false;
    bool byte_fallback = false;
    bool ignore_merges = false;
  };
  // Of two neighbours that are a token together, those of the lowest `ranks` (by id; negative: not of this) are joined.
  static std::unique_ptr<Bpe> of_ranks(Vocabulary vocabulary, std::span<const int64_t> ranks, const Options& options);

  // From now on the pieces are plain text, not spelled in the byte alphabet: the same ids, faster. Returns false,
  // and changes nothing, where the vocabulary does not allow it.
  bool take_bytes();

  // Whether a text may be cut before every run of the character `mark` without changing its ids: true when no token
  // goes on to a mark.
  bool may_cut_before(std::string_view mark) const;

 protected:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  Bpe(Vocabulary vocabulary, size_t merges);
  void read_merges(const JsonField& field);
  void index_characters();
  // The symbols that a word starts as.
  void start_word(std::string_view word, std::vector<int32_t>& symbols) const;
  void start_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  int32_t character_id(char32_t character) const;  // -1 when there is none
  // Join the symbols in place.
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  MergeTable merges_;
  std::string prefix_;  // of symbols that do not begin a word
  std::string suffix_;  // of the symbol that ends a word
  Options options_;
  bool takes_bytes_ = false;
  std::array<int32_t, 256> byte_ids_{};                  // of the byte alphabet, or of <0x00>... when byte_fallback_
  std::vector<int32_t> character_ids_;                   // of the characters below U+10000, -1 when there is none
  std::unordered_map<std::string_view, int32_t> words_;  // ignore_merges: whole words, as bytes when takes_bytes_
  std::vector<std::string> word_texts_;
};

}  // namespace fettle
