#include "plan/say_work.h"

#include "base/log.h"

namespace fettle {

void say_work(const std::string& text) {
  if (stderr_is_terminal())
    live_line(text);
  else
    info("{}", text);
}

}  // namespace fettle
