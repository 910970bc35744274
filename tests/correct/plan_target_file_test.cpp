#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "base/error.h"
#include "paths.h"
#include "plan/target_file.h"
#include "runtime/vendors/topology.h"
#include "temp_folder.h"

namespace fettle {
namespace {

Target read(const std::string& text, const std::string& name = "mine.yaml") {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / name;
  std::ofstream(file) << text;
  return find_target(file.string());
}

TEST(TargetFile, ChangesFiguresOfAKnownTarget) {
  const Target& base = target_named("mi300x");
  const Target target = read("like: MI300X\nmemory_gib: 96.5\nnetwork_gb_per_s: 12\nchip: {cores: 80}\n");
  EXPECT_EQ(target.name, "mine");
  EXPECT_EQ(target.title, "mine");
  EXPECT_EQ(target.plugin, "rocm");
  EXPECT_EQ(target.memory_bytes, 193 * (int64_t{1} << 29));
  EXPECT_EQ(target.network_gb_per_s, 12);
  EXPECT_EQ(target.bf16_tflops, base.bf16_tflops);
  EXPECT_EQ(target.link_peers, base.link_peers);
  EXPECT_EQ(target.chip.capability, base.chip.capability);
  EXPECT_NE(target.config.find("core_count: 80\n"), std::string::npos) << target.config;
  EXPECT_NE(target.config.find("device_memory_size: 103616086016\n"), std::string::npos) << target.config;
  EXPECT_EQ(config_text(base), base.config);
}

TEST(TargetFile, DescribesANewTarget) {
  const std::string figures =
      "name: p100\ntitle: NVIDIA P100\nplugin: cuda\nmemory_gib: 16\nbf16_tflops: 10\nf32_tflops: 9.5\n"
      "memory_gb_per_s: 732\nlink_gb_per_s: 80\nlink_peers: 4\nnetwork_gb_per_s: 12.5\n";
  const Target target = read(figures +
                             "chip:\n  capability: '6.0'\n  cores: 56\n  fpus_per_core: 64\n  threads_per_core: 2048\n"
                             "  shared_memory_per_core: 65536\n  shared_memory_per_block: 49152\n  l2_bytes: 4194304\n"
                             "  clock_ghz: 1.48\n  nvlinks: 4\n");
  EXPECT_EQ(target.name, "p100");
  EXPECT_EQ(target.title, "NVIDIA P100");
  EXPECT_EQ(target.f32_tflops, 9.5);
  EXPECT_EQ(target.link_peers, 4);
  EXPECT_EQ(target.chip.threads_per_warp, 32);
  EXPECT_NE(target.config.find("cuda_compute_capability { major: 6 minor: 0 }"), std::string::npos) << target.config;
  EXPECT_NE(target.config.find("active_links: 4"), std::string::npos);
  EXPECT_EQ(read(figures + "config: |\n  platform_name: \"CUDA\"\n").config, "platform_name: \"CUDA\"\n");
}

TEST(TargetFile, MayBeJson) {
  EXPECT_EQ(read(R"({"like": "h100", "memory_gib": 40})", "half.json").memory_bytes, int64_t{40} << 30);
  EXPECT_EQ(read(R"({"like": "h100", "memory_gib": 40})", "half.json").name, "half");
}

TEST(TargetFile, NamesAreNotFiles) {
  EXPECT_EQ(find_target("H100").title, target_named("h100").title);
}

TEST(TargetFile, ItsConfigCompilesLikeTheKnownTarget) {
  if (Plugin::find("rocm").empty()) GTEST_SKIP() << "the rocm plugin is missing: run `make plugins`";
  const Target target = read("like: mi300x\nmemory_gib: 64\nchip: {cores: 80}\n");
  EXPECT_EQ(Topology::create(Plugin::load("rocm"), target.config, "1x1x2").device_count(), 2);
}

// docs/targets.md states figures that were reported for a target. Returns whether one of them equals the target's
// memory to within 0.02 GiB.
bool is_reported(const std::string& sources, const Target& target) {
  const size_t begin = sources.find(fmt::format("\n| `{}` | ", target.name));
  if (begin == std::string::npos) return false;
  const size_t from = sources.find("` | ", begin) + 4;
  std::string reported = sources.substr(from, sources.find(" | ", from) - from);
  std::erase(reported, ',');
  const std::map<std::string, double> units{
      {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"MB", 1 << 20}, {"KiB", 1024}, {"bytes", 1}};
  std::string unit = "GiB";
  const std::regex figure("([0-9]+(?:\\.[0-9]+)?)(?: (GiB|MiB|MB|KiB|bytes))?");
  for (std::sregex_iterator at(reported.begin(), reported.end(), figure), end; at != end; ++at) {
    if ((*at)[2].matched) unit = (*at)[2];
    const double bytes = std::stod((*at)[1]) * units.at(unit);
    if (std::abs(bytes - static_cast<double>(target.memory_bytes)) < 0.02 * (1 << 30)) return true;
  }
  return false;
}

TEST(TargetFile, TheDocumentShowsTheTable) {
  std::ifstream in(source_folder() / "docs/targets.md");
  std::stringstream text;
  text << in.rdbuf();
  std::string table;
  for (const Target& t : targets()) {
    table += fmt::format("| `{}` | {} | {} | {:.2f} ({:.1f}) | {} | {} | {} | {}{} | {} | {} |\n", t.name, t.title,
                         t.plugin, static_cast<double>(t.memory_bytes) / (1 << 30),
                         static_cast<double>(t.memory_bytes) / 1e9, t.bf16_tflops, t.f32_tflops, t.memory_gb_per_s,
                         t.link_gb_per_s, t.link_peers > 0 ? fmt::format(" (to {} devices)", t.link_peers) : "",
                         t.network_gb_per_s, t.host_gb_per_s);
  }
  EXPECT_NE(text.str().find(table), std::string::npos) << table;
  const std::string sources = text.str().substr(text.str().find("## Where the memory figures come from"));
  for (const Target& t : targets()) {
    EXPECT_TRUE(is_reported(sources, t)) << "no reported figure of " << t.name << " is the table's memory";
    // A reader must be able to find each source: it is a URL, a file of XLA, or a repository with a text to search for.
    const std::regex row(
        fmt::format("\n\\| `{}` \\| [^|\n]*[0-9][^|\n]* \\| (https://|XLA, `|[\\w.-]+/[\\w.-]+, [`\"])[^|\n]+ "
                    "\\|\n",
                    t.name));
    EXPECT_TRUE(std::regex_search(sources, row)) << "the memory of " << t.name << " has no figure and source";
  }
}

}  // namespace
}  // namespace fettle
