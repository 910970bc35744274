// Tests how the servers write their addresses.
#include <gtest/gtest.h>

#include "http/listener.h"

namespace fettle {
namespace {

TEST(HttpListener, AnAddressOfIpv6IsInBrackets) {
  EXPECT_EQ(url_host("::1"), "[::1]");
  EXPECT_EQ(url_host("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(url_host("gpu01"), "gpu01");
}

}  // namespace
}  // namespace fettle
