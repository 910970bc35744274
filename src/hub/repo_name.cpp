#include "hub/repo_name.h"

#include <algorithm>

#include "base/error.h"

namespace fettle {
namespace {

bool is_word(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_part(const std::string& part) {
  return !part.empty() && is_word(part.front()) && is_word(part.back()) &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) { return is_word(c) || c == '-' || c == '.'; });
}

bool is_id(const std::string& id) {
  constexpr size_t kLongest = 96;  // of the part after the slash
  if (id.find("..") != std::string::npos || id.find("--") != std::string::npos) return false;
  if (id.ends_with(".git")) return false;
  const size_t slash = id.find('/');
  const std::string name = slash == std::string::npos ? id : id.substr(slash + 1);
  return name.size() <= kLongest && is_part(name) && (slash == std::string::npos || is_part(id.substr(0, slash)));
}

}  // namespace

std::optional<RepoName> read_repo_name(RepoKind kind, const std::string& text) {
  const size_t at = text.find('@');
  RepoName name{.kind = kind, .id = text.substr(0, at)};
  if (!is_id(name.id)) return std::nullopt;
  if (at != std::string::npos) {
    name.revision = text.substr(at + 1);
    check_revision(name.revision);
  }
  return name;
}

void check_revision(const std::string& revision) {
  const bool plain = std::all_of(revision.begin(), revision.end(), [](unsigned char c) {
    return is_word(c) || c == '-' || c == '.' || c == '/' || c == '+';
  });
  if (!plain || !is_path_inside(revision) || revision.size() > 200 || revision.find("..") != std::string::npos ||
      revision.front() == '-')
    throw UserError("'{}' is not a revision; name a branch, a tag or a commit", revision);
}

bool is_path_inside(const std::string& path) {
  if (path.empty() || path.size() > 1000 || path.find('\\') != std::string::npos) return false;
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < ' ' || c == 127; })) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    begin = end + 1;
  }
  return true;
}

bool is_hex(const std::string& text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace fettle
