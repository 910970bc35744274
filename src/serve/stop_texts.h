// Defines StopTexts, which finds texts that end a reply, while the reply is being written.
#pragma once

#include <string>
#include <vector>

namespace fettle {

// A stop text and all text after it are not part of the reply. If the reply ends with the first characters of a stop
// text, they are held back until the next text decides whether they belong to it.
class StopTexts {
 public:
  // `texts` must not contain an empty text.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Returns the text that certainly belongs to the reply. Returns "" after a stop text was found.
  std::string push(const std::string& text);
  // Returns the text that was held back, because no more text follows.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace fettle
