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
  for (const char* text : {"", "a", "ab", "abc", "abcd"}) {
    const std::string padded = encode_base64(text);
    for (const std::string& form : {padded, padded.substr(0, padded.find('='))}) {
      std::string bytes;
      EXPECT_TRUE(decode_base64(form, bytes)) << form;
      EXPECT_EQ(bytes, text);
    }
  }
}

}  // namespace
}  // namespace fettle
