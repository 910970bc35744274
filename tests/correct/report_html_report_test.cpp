// Tests that report.html needs no other files, and that texts of a run are shown as text, not read as HTML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "report/view/html_report.h"
#include "report/view/run_view.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr const char* kEvil = "</script><script>alert('x')</script><!-- & \"'<img src=x onerror=alert(1)>";

constexpr const char* kEvilFigure = "</script><script>alert(2)</script>";

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t begin = text.rfind(before);
  if (begin == std::string::npos) return "";
  return text.substr(begin + before.size(), text.find(after, begin + before.size()) - begin - before.size());
}

std::string sha256_base64(const std::string& text) {
  unsigned char digest[32], out[64];
  EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha256(), nullptr);
  EVP_EncodeBlock(out, digest, 32);
  return reinterpret_cast<char*>(out);
}

class HtmlReport : public testing::Test {
 protected:
  HtmlReport() {
    std::string log;
    for (int step = 1; step <= 2500; ++step)
      log += ordered_json{{"current_steps", step}, {"total_steps", 2500}, {"loss", 1.0 / step}, {kEvilFigure, step}}
                 .dump() +
             "\n";
    write_text(folder / "trainer_log.jsonl", log + "damaged\n");
    write_text(folder / "all_results.json", ordered_json{{"train_loss", 0.5}, {kEvil, 1}}.dump());
    run = {{"name", kEvil},
           {"state", "failed"},
           {"message", kEvil},
           {"model", kEvil},
           {"recipe", {{"run_name", kEvil}}},
           {"rows", {{{"source", kEvil}, {"pieces", {{{"text", kEvil}, {"trained", true}}}}}}}};
  }
  std::string page() const {
    write_text(folder / "fettle_run.json", run.dump());
    return html_report(folder.path());
  }
  TempFolder folder;
  ordered_json run;
};

TEST_F(HtmlReport, NeedsNothingFromElsewhere) {
  run = {{"name", "a run"}};
  write_text(folder / "all_results.json", "{}");
  write_text(folder / "trainer_log.jsonl", "{\"current_steps\": 1, \"loss\": 2}\n");
  const std::string text = page();
  for (const char* other : {"http:", "https:", "//cdn", "@import", "fetch(", "XMLHttpRequest", "WebSocket", "innerHTML",
                            "<link", "<iframe", "<img"})
    EXPECT_THAT(text, Not(HasSubstr(other)));
  EXPECT_THAT(text, Not(ContainsRegex("(src|href)=")));
  EXPECT_THAT(text, Not(ContainsRegex("url\\(")));
  EXPECT_THAT(text, HasSubstr("default-src 'none'"));
}

TEST_F(HtmlReport, ThePolicyAllowsItsOwnScriptAndStyleAlone) {
  const std::string text = page(), policy = between(text, "Content-Security-Policy\" content=\"", "\"");
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-" + sha256_base64(between(text, "<script>", "</script>")) + "';"));
  EXPECT_THAT(policy, HasSubstr("style-src 'sha256-" + sha256_base64(between(text, "<style>", "</style>")) + "';"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
}

TEST_F(HtmlReport, TextsStayTexts) {
  const std::string text = page();
  EXPECT_THAT(text, AllOf(Not(HasSubstr("<script>alert")), Not(HasSubstr("<img src=x")), Not(HasSubstr("<!-- &"))));
  size_t ends = 0;
  for (size_t at = 0; (at = text.find("</script", at)) != std::string::npos; ++at) ++ends;
  EXPECT_EQ(ends, 2u) << "the end of the data and of the script";
  const ordered_json data = ordered_json::parse(between(text, "id=\"data\">", "</script>"));
  EXPECT_EQ(data["run"], run);
  EXPECT_EQ(data["results"][kEvil], 1);
  EXPECT_EQ(data["summary"]["message"], kEvil);
  EXPECT_TRUE(data["curves"]["step"].contains(kEvilFigure));
}

TEST_F(HtmlReport, HasAThousandPointsOfACurve) {
  const ordered_json data = ordered_json::parse(between(page(), "id=\"data\">", "</script>"));
  for (const char* axis : {"step", "seconds"}) {
    const ordered_json& curve = data["curves"][axis]["loss"];
    EXPECT_EQ(curve["values"], 2500);
    EXPECT_THAT(curve["mean"], SizeIs(1000));
    EXPECT_EQ(curve["high"][0], 1);
    EXPECT_EQ(curve["low"].back(), 1.0 / 2500);
  }
  EXPECT_EQ(data["damaged"], 1);
}

TEST_F(HtmlReport, OfAnEmptyFolderIsAPage) {
  const TempFolder empty;
  const std::string text = html_report(empty.path());
  const ordered_json data = ordered_json::parse(between(text, "id=\"data\">", "</script>"));
  EXPECT_TRUE(data["run"].is_null());
  EXPECT_EQ(data["summary"]["state"], "failed");
}

TEST(PageJson, IsValidInAScriptElement) {
  EXPECT_EQ(page_json({{"<a", "</b"}}), "{\"\\u003ca\":\"\\u003c/b\"}");
  const std::string text = page_json({{"a", "\xff\xc3"}});
  EXPECT_EQ(ordered_json::parse(text)["a"], "\xef\xbf\xbd\xef\xbf\xbd") << "invalid UTF-8 is replaced";
}

}  // namespace
}  // namespace fettle
