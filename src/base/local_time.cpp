#include "base/local_time.h"

namespace fettle {

LocalTime LocalTime::now() {
  return at(std::time(nullptr));
}

LocalTime LocalTime::at(std::time_t seconds) {
  std::tm local{};
  localtime_r(&seconds, &local);
  return {seconds, local.tm_gmtoff, local.tm_zone};
}

std::tm LocalTime::parts() const {
  const std::time_t shifted = seconds + offset;
  std::tm out{};
  gmtime_r(&shifted, &out);
  out.tm_gmtoff = offset;
  out.tm_zone = zone.c_str();
  return out;
}

std::string LocalTime::text() const {
  const std::tm at = parts();
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &at)};
}

}  // namespace fettle
