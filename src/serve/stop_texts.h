// Defines StopTexts, which ends a reply at a stop text while the reply is being written.
#pragma once

#include <string>
#include <vector>

namespace fettle {

// A stop text and all text after it are not part of the reply. If the text so far ends with the first characters of a
// stop text, these characters are held back. The next text shows whether the stop text is complete.
class StopTexts {
 public:
  // `texts` must not contain an empty text.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Adds `text`, and returns the text that now certainly belongs to the reply. Returns "" after a stop text was found.
  std::string push(const std::string& text);
  // Call this when no more text follows. Returns the text that was held back.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace fettle
