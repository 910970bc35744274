// Defines Charsmap: the table of replacements in SentencePiece models ("precompiled_charsmap").
//
// Format: the length of a trie in bytes (little-endian uint32), the trie as a double array of Darts-clone units, and
// the replacements, each with a NUL byte at its end. A value of the trie is the offset of a replacement.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

class Charsmap {
 public:
  // Throws UserError, which names `origin`, when the bytes are not such a table.
  Charsmap(std::string_view bytes, const std::string& origin);

  struct Match {
    size_t length = 0;  // bytes of the text that match; 0 when nothing matches
    std::string_view replacement;
  };
  Match find_shortest(std::string_view text) const { return find(text, true); }
  Match find_longest(std::string_view text) const { return find(text, false); }

 private:
  Match find(std::string_view text, bool shortest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace fettle
