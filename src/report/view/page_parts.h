// Declares the texts of src/report/page, which the build embeds (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace fettle {

extern const std::string_view kPageStyle;      // page.css: colours, charts, tables, for the board and the report
extern const std::string_view kChartScript;    // chart.js: class Chart
extern const std::string_view kRunViewScript;  // run_view.js: what a page shows of a run
extern const std::string_view kReportScript;   // report.js: report.html

}  // namespace fettle
