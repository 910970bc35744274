#include "doctor/finding.h"

#include <algorithm>

#include "base/error.h"

namespace fettle {
namespace {

// Splits an error's message into the fault and the remedy, which begins after the last "; ". The fault may quote a
// plugin or the loader, so it may contain "; " itself. An error of PJRT has no remedy (pjrt.h).
Finding finding_of(const std::string& check, const std::string& message) {
  const size_t end = message.starts_with("PJRT_") ? std::string::npos : message.rfind("; ");
  if (end == std::string::npos)
    return {check, Verdict::kBad, message, "see docs/troubleshooting.md; if that does not help, report this output"};
  return {check, Verdict::kBad, message.substr(0, end), message.substr(end + 2)};
}

}  // namespace

bool Findings::attempt(const std::string& name, const std::function<Finding()>& check) {
  try {
    all_.push_back(check());
  } catch (const std::exception& error) {
    all_.push_back(finding_of(name, error.what()));
  }
  return all_.back().verdict != Verdict::kBad;
}

bool Findings::bad() const {
  return std::ranges::any_of(all_, [](const Finding& finding) { return finding.verdict == Verdict::kBad; });
}

std::string_view word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood: return "ok";
    case Verdict::kNote: return "note";
    case Verdict::kBad: return "bad";
    case Verdict::kSkipped: return "skipped";
  }
  return "";
}

std::string format_findings(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings.all()) {
    text += fmt::format("{:<9}{:<29}{}\n", word_of(finding.verdict), finding.check, finding.text);
    if (!finding.remedy.empty()) text += fmt::format("{:<38}remedy: {}\n", "", finding.remedy);
  }
  const auto bad = std::ranges::count(findings.all(), Verdict::kBad, &Finding::verdict);
  return text + (bad == 0 ? "\nall is well\n" : fmt::format("\n{} check{} found a fault\n", bad, bad == 1 ? "" : "s"));
}

nlohmann::json to_json(const Findings& findings) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings.all())
    checks.push_back({{"check", finding.check},
                      {"verdict", word_of(finding.verdict)},
                      {"text", finding.text},
                      {"remedy", finding.remedy},
                      {"figures", finding.figures}});
  return {{"healthy", !findings.bad()}, {"checks", std::move(checks)}};
}

}  // namespace fettle
