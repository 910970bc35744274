// Defines StopTexts, which finds the texts that end a reply while the reply is written.
#pragma once

#include <string>
#include <vector>

namespace fettle {

// A stop text and what follows it are not part of the reply. Its start is held back until it is clear whether the rest
// follows.
class StopTexts {
 public:
  // No text is empty.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Returns the text that is certain now. Returns "" once a stop text was found.
  std::string push(const std::string& text);
  // Returns what was held back, because no more text follows.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace fettle
