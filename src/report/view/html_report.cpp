#include "report/view/html_report.h"

#include <openssl/evp.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/files/output_file.h"
#include "base/files/run_files.h"
#include "report/view/page_parts.h"
#include "report/view/run_file.h"
#include "report/view/run_view.h"

namespace fettle {
namespace {

// Returns the source expression of a Content-Security-Policy that allows exactly this text.
std::string allowed_by_hash(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  internal_check(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) == 1,
                 "html_report: OpenSSL has no SHA-256");
  return "'sha256-" + encode_base64({reinterpret_cast<const char*>(digest), size}) + "'";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string html_report(const std::filesystem::path& folder) {
  const FolderFiles files(folder);
  RunLog log;
  log.update(files, kProgressLog);
  nlohmann::ordered_json data = run_details(files, "");
  data["summary"] = run_summary(files, "", log, false);
  data["damaged"] = log.damaged();
  for (const char* axis : {"step", "seconds"}) data["curves"][axis] = curves_json(log, {}, *log_axis(axis), 1000);
  const auto name = data["run"].is_object() && data["run"].contains("name") && data["run"]["name"].is_string()
                        ? data["run"]["name"].get<std::string>()
                        : folder.filename().string();
  const std::string script = fmt::format("{}\n{}\n{}", kChartScript, kRunViewScript, kReportScript);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {}; style-src {}; "
      "img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n<body class=\"report\">\n<main id=\"report\"></main>\n"
      "<noscript>This report draws its curves with JavaScript, which is switched off.</noscript>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n<script>{}</script>\n</html>\n",
      allowed_by_hash(script), allowed_by_hash(kPageStyle), escaped(name), kPageStyle, page_json(data), script);
}

void write_html_report(const std::filesystem::path& folder) {
  write_file(folder / kReportFile, html_report(folder));
}

}  // namespace fettle
