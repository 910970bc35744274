#include "board/board.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files/own_program.h"
#include "base/files/run_files.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/process_name.h"
#include "board/board_page.h"
#include "board/control.h"
#include "board/recipe_form.h"
#include "http/caller.h"
#include "http/listener.h"
#include "report/view/page_parts.h"
#include "report/view/run_file.h"
#include "report/view/run_view.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
using Handled = httplib::Server::HandlerResponse;

constexpr size_t kBoardBody = 1 << 20;
constexpr int64_t kMostPoints = 4000, kMostCurves = 60;
constexpr int64_t kLogTail = 64 << 10, kAnswerBlock = 256 << 10;
constexpr double kFarthest = 0x1p53;  // the largest offset, in bytes; a double represents every integer up to it

void send_json(httplib::Response& response, const ordered_json& value) {
  response.set_content(page_json(value), "application/json");
}

void send_error(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  send_json(response, {{"error", text}});
}

double number_param(const httplib::Request& request, const char* name, double otherwise) {
  if (!request.has_param(name)) return otherwise;
  const std::string text = request.get_param_value(name);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw UserError("the parameter {} is '{}', wanted a number", name, text);
  return value;
}

std::vector<std::string> list_param(const httplib::Request& request, const char* name) {
  std::vector<std::string> out;
  for (auto [it, end] = request.params.equal_range(name); it != end; ++it) out.push_back(it->second);
  return out;
}

// Returns up to `most` lines of a .jsonl file from byte `from` on, and the byte at which the next lines begin (null at
// the end). Leaves out lines that are not JSON objects, and lines that are longer than a block. The last line counts
// even without a newline.
ordered_json answer_lines(const OpenedFile& file, int64_t from, int64_t most) {
  const int64_t size = file.stamp().size;
  from = std::clamp<int64_t>(from, 0, size);
  std::string block = file.read(from, kAnswerBlock);
  const bool at_end = from + std::ssize(block) >= size;
  if (at_end && !block.empty() && block.back() != '\n') block += '\n';
  ordered_json rows = ordered_json::array();
  size_t begin = 0;
  for (size_t end; std::ssize(rows) < most && (end = block.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto row = parse_json_or_discard<ordered_json>(std::string_view(block).substr(begin, end - begin));
    if (row.is_object()) rows.push_back(std::move(row));
  }
  if (begin == 0) begin = block.size();  // the block has only a part of a long line; the next call skips the rest
  const int64_t next = from + static_cast<int64_t>(begin);
  return {{"rows", std::move(rows)}, {"next", next < size && begin > 0 ? ordered_json(next) : ordered_json(nullptr)}};
}

class BoardServer {
 public:
  BoardServer(const BoardOptions& options, const std::filesystem::path& program)
      : options_(options),
        open_(is_loopback(options.host)),
        jobs_(program),
        control_(jobs_),
        runs_(options.folder, [this](const std::string& name) { return control_.works_on(name); }),
        listener_(options.host, options.port, {.threads = 64, .largest_body = kBoardBody}) {
    httplib::Server& http = listener_.server();
    http.set_default_headers({
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    });
    http.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return refuse(request, response) ? Handled::Handled : Handled::Unhandled;
    });
    http.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (response.body.empty())
        send_error(response, response.status,
                   response.status == 404
                       ? fmt::format("{} {} is not known; see docs/board.md", request.method, request.path)
                       : fmt::format("the request cannot be read (HTTP status {})", response.status));
    });
    http.set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr thrown) {
      try {
        std::rethrow_exception(thrown);
      } catch (const Error& error) {
        send_error(response, error.code() == ExitCode::kInternal ? 500 : 400, error.what());
      } catch (const std::exception& error) {
        warn("a request failed: {}", error.what());
        send_error(response, 500, error.what());
      }
    });
    pages(http);
    reads(http);
    if (!options.read_only) writes(http);
  }

  int bind() { return listener_.bind(); }
  void run() {
    listener_.run([] {});
  }

 private:
  bool has_token(const httplib::Request& request) const { return has_key(request, options_.token); }

  // Requests that change something always need the token. If other machines can reach the server, reading /api/ needs
  // the token, too.
  bool refuse(const httplib::Request& request, httplib::Response& response) const {
    const bool reads = request.method == "GET" || request.method == "HEAD";
    std::optional<HttpRefusal> refusal = refuse_caller(options_.host, request);
    if (!refusal && !reads && request.method != "POST")
      refusal = {405, fmt::format("{} is not supported; see docs/board.md", request.method)};
    if (!refusal && !reads) refusal = refuse_body(request);
    if (!refusal && (!reads || (!open_ && request.path.starts_with("/api/"))) && !has_token(request))
      refusal = {401, "the token is missing or wrong; `fettle board` printed it when it started"};
    if (refusal) send_error(response, refusal->status, refusal->text);
    return refusal.has_value();
  }

  static void pages(httplib::Server& http) {
    const auto serve = [&](const char* path, std::string text, const char* type) {
      http.Get(path, [text = std::move(text), type](const httplib::Request&, httplib::Response& response) {
        response.set_content(text, type);
      });
    };
    serve("/", std::string(kBoardPage), "text/html; charset=utf-8");
    serve("/style.css", fmt::format("{}\n{}", kPageStyle, kBoardStyle), "text/css; charset=utf-8");
    serve("/script.js", fmt::format("{}\n{}\n{}\n{}", kChartScript, kRunViewScript, kComposeScript, kBoardScript),
          "text/javascript; charset=utf-8");
  }

  // Returns the path of the run that the request names. Throws UserError when there is no such run.
  std::string path_of(const httplib::Request& request) {
    const std::string name = request.get_param_value("name");
    const std::optional<std::string> path = runs_.path_of(name);
    if (!path) throw UserError("there is no run '{}' in {}", name, options_.folder);
    return *path;
  }

  void reads(httplib::Server& http) {
    http.Get("/api/board", [this](const httplib::Request& request, httplib::Response& response) {
      send_json(response, {{"folder", std::filesystem::absolute(options_.folder).lexically_normal().string()},
                           {"read_only", options_.read_only},
                           {"token", has_token(request)}});
    });
    http.Get("/api/runs", [this](const httplib::Request& request, httplib::Response& response) {
      runs_.refresh();
      const double since = number_param(request, "since", 0);
      ordered_json changes = runs_.changes(since > 0 && since < 1e15 ? static_cast<uint64_t>(since) : 0);
      changes["board"] = process_name();  // when this name changes, a page knows that the board was restarted
      send_json(response, changes);
    });
    http.Get("/api/run", [this](const httplib::Request& request, httplib::Response& response) {
      ordered_json details = run_details(runs_.files(), path_of(request));
      details["name"] = request.get_param_value("name");
      details["output"] = runs_.files().stamp(run_path(path_of(request), kTrainOutput)).has_value();
      send_json(response, details);
    });
    http.Get("/api/curves",
             [this](const httplib::Request& request, httplib::Response& response) { send_curves(request, response); });
    http.Get("/api/answers", [this](const httplib::Request& request, httplib::Response& response) {
      const std::string file = request.get_param_value("file"), path = path_of(request);
      const ordered_json known = run_details(runs_.files(), path)["answers"];
      if (std::ranges::find(known, ordered_json(file)) == known.end())
        throw UserError("the run has no answers in '{}'", file);
      const std::optional<OpenedFile> opened = runs_.files().open(run_path(path, file));
      if (!opened) throw UserError("'{}' cannot be read", file);
      send_json(response,
                answer_lines(*opened,
                             static_cast<int64_t>(std::clamp(number_param(request, "from", 0), 0.0, kFarthest)), 20));
    });
    http.Get("/api/output", [this](const httplib::Request& request, httplib::Response& response) {
      const std::optional<OpenedFile> file = runs_.files().open(run_path(path_of(request), kTrainOutput));
      if (!file) throw UserError("another program started this run; look for the messages in that program's terminal");
      const int64_t from = std::max<int64_t>(0, file->stamp().size - kLogTail);
      std::string text = file->read(from, kLogTail);
      if (from > 0) text.erase(0, text.find('\n') + 1);
      send_json(response, {{"text", text}, {"cut", from > 0}});
    });
    http.Get("/api/keys", [](const httplib::Request&, httplib::Response& response) {
      send_json(response, {{"keys", recipe_form_json()}});
    });
  }

  void send_curves(const httplib::Request& request, httplib::Response& response) {
    const std::vector<std::string> names = list_param(request, "name"), keys = list_param(request, "key");
    if (std::ssize(names) > kMostCurves)
      throw UserError("at most {} runs can be drawn together; select fewer", kMostCurves);
    const std::string axis_name = request.has_param("axis") ? request.get_param_value("axis") : "step";
    const std::optional<LogAxis> axis = log_axis(axis_name);
    if (!axis) throw UserError("the axis is '{}', wanted step, seconds, tokens or epoch", axis_name);
    const CurveRange all;
    const CurveRange range{number_param(request, "from", all.from), number_param(request, "to", all.to)};
    const auto points = static_cast<int64_t>(
        std::clamp<double>(number_param(request, "points", 600), 1, static_cast<double>(kMostPoints)));
    ordered_json out = ordered_json::object();
    for (const std::string& name : names)
      runs_.with_log(name, [&](const RunLog& log) {
        out[name] = {{"names", curve_names(log)},
                     {"lines", log.rows().size()},
                     {"damaged", log.damaged()},
                     {"curves", curves_json(log, keys, *axis, points, range)}};
      });
    send_json(response, {{"runs", std::move(out)}});
  }

  void writes(httplib::Server& http) {
    const auto action = [&](const char* path, std::function<ordered_json(const ordered_json&)> act) {
      http.Post(path, [act = std::move(act)](const httplib::Request& request, httplib::Response& response) {
        const auto asked = parse_json<ordered_json>(request.body);
        if (!asked.is_object()) throw UserError("the body is not a JSON object");
        send_json(response, act(asked));
      });
    };
    action("/api/check", [this](const ordered_json& asked) { return control_.check(asked); });
    action("/api/query", [this](const ordered_json& asked) { return control_.query(asked); });
    action("/api/query/state", [this](const ordered_json& asked) { return control_.query_state(asked); });
    action("/api/query/end", [this](const ordered_json& asked) { return control_.query_end(asked); });
    action("/api/start", [this](const ordered_json& asked) { return control_.start(runs_, asked); });
    action("/api/resume", [this](const ordered_json& asked) { return control_.resume(runs_, asked); });
    action("/api/stop", [this](const ordered_json& asked) { return control_.stop(runs_, asked); });
  }

  const BoardOptions& options_;
  const bool open_;  // true: requests that only read need no token
  Jobs jobs_;
  Control control_;
  RunList runs_;
  HttpListener listener_;
};

}  // namespace

int run_board(const BoardOptions& given) {
  BoardOptions options = given;
  if (options.token.empty()) options.token = random_hex(4);
  constexpr std::string_view kInAddresses = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-";
  if (options.token.find_first_not_of(kInAddresses) != std::string::npos)
    throw UserError(
        "FETTLE_BOARD_TOKEN may contain only letters, digits and . _ ~ -, because it is part of an address");
  const InterruptScope interrupts;
  BoardServer server(options, own_program());
  const int port = server.bind();
  const std::string shown = options.host == "0.0.0.0" ? "127.0.0.1" : url_host(options.host);
  log_line(LogLevel::kQuiet, fmt::format("showing the runs of {}; open http://{}:{}/#token={} (Ctrl-C ends)",
                                         options.folder, shown, port, options.token));
  if (!is_loopback(options.host))
    warn("every machine that reaches {} port {} sees this page, and can use it with the token; there is no TLS",
         options.host, port);
  server.run();
  return 0;
}

}  // namespace fettle
