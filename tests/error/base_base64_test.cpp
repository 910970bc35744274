// Tests base64 texts that are incomplete or have wrong characters.
#include <gtest/gtest.h>

#include "base/base64.h"

namespace fettle {
namespace {

TEST(Base64, RefusesWhatIsNoWholeNumberOfBytes) {
  std::string bytes;
  for (const char* wrong : {"A", "A=", "A==", "A===", "YWJjA", "YQ=", "YQ===", "YWI==", "YWJj=", "=",
                            "==", "====", "YQ==YQ==", "Y Q=", "YQ-_"})
    EXPECT_FALSE(decode_base64(wrong, bytes)) << wrong;
}

TEST(Base64, PaddingIsOptional) {
  // The last text is longer than the part that is encoded at a time.
  for (const std::string& text : {std::string(), std::string("a"), std::string("ab"), std::string("abc"),
                                  std::string("abcd"), std::string((6 << 20) + 1, 'x')}) {
    const std::string padded = encode_base64(text);
    for (const std::string& form : {padded, padded.substr(0, padded.find('='))}) {
      std::string bytes;
      EXPECT_TRUE(decode_base64(form, bytes)) << text.size();
      EXPECT_TRUE(bytes == text) << text.size();
    }
  }
}

}  // namespace
}  // namespace fettle
