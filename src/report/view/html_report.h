// Defines write_html_report, which writes report.html: a page about a whole run in one file, which needs no network.
#pragma once

#include <filesystem>
#include <string>

namespace fettle {

// Makes the report from fettle_run.json, trainer_log.jsonl and all_results.json in `folder`. Its curves have at most
// 1,000 points each. Its Content-Security-Policy allows only the page's own script and style, and forbids requests.
std::string html_report(const std::filesystem::path& folder);

// Writes the report into the folder. Throws UserError when the file is not writable.
void write_html_report(const std::filesystem::path& folder);

}  // namespace fettle
